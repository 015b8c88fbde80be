"""Workers of Python, Node.js and Rust on one database: what each of them does, the others understand."""
