"""`graphile-worker bench`: the kinds of jobs that it runs (`loads`), and its worker processes (`worker`)."""
