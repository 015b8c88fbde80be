"""The command `graphile-worker`.

`commands/` has the sub-commands, each imported when it is called; `support/` what several of them share;
`dev/` and `demo/` belong to the commands of these names. Only `contrib` may import this package. Start in
`main`.
"""
