-- Settings for the session that holds a worker's lock: the server shall notice soon when the machine at the other
-- end is gone without a word. They mean nothing, and do no harm, on a Unix socket.
select
  set_config('tcp_keepalives_idle', '5', false),
  set_config('tcp_keepalives_interval', '3', false),
  set_config('tcp_keepalives_count', '3', false)
