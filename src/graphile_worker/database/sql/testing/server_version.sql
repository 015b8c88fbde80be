-- The server's version as its packager wrote it, such as `15.14 (Debian 15.14-0+deb12u1)`.
show server_version
