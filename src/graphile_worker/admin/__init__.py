"""The dashboard and its JSON API, as an ASGI application. Needs the extra `admin`.

    admin = admin_app(connection_string=..., authorize=who)
    app.mount("/jobs", admin)

A request takes one path: `app` → `security` (host, origin, sign-in) → the table of routes → a handler in
`pages/` or `api/` → `service/` → PostgreSQL. Handlers are thin. Everything that can be asked or done is a
function in `service/`, one module per subject, which takes a `Database` and returns structs of `models/`;
nothing in there knows HTTP. Only `cli` and `contrib` may import this package. Start in `app`.
"""

from typing import TYPE_CHECKING

from ..values.imports import export_lazily

if TYPE_CHECKING:
    from .app import AdminApp as AdminApp
    from .app import admin_app as admin_app
    from .auth import SignIn as SignIn
    from .database import Database as Database
    from .identity import Authorize as Authorize
    from .identity import Identity as Identity
    from .identity import everyone_may as everyone_may
    from .mount import mount as mount
    from .permissions import Permission as Permission

export_lazily(
    __name__,
    {
        "app": "AdminApp admin_app",
        "auth": "SignIn",
        "database": "Database",
        "identity": "Authorize Identity everyone_may",
        "mount": "mount",
        "permissions": "Permission",
    },
)
