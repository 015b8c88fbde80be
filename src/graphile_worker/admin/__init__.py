"""The dashboard and its JSON API, as an ASGI application. Needs the extra `admin`.

    admin = admin_app(connection_string=..., authorize=who)
    app.mount("/jobs", admin)

A request takes one path: `app` → `security/` (host, origin, sign-in) → the table of routes → a handler in the
`views` of its subject → the `queries` of that subject → PostgreSQL. One handler serves a page and the API.

One package per subject: `jobs`, `failures`, `tasks`, `queues`, `workers`, `schedules`, `operations`,
`audit`, `overview` and `doctor`. Each has `queries` that take a `Database` and know nothing of HTTP (`jobs`
has several modules of that kind), and `views`; a value is defined where it is made. Below them are `web/`
(calls, routes, templates), `live/` (the sampler and its streams), `charts/`, `security/`, and `answers`,
`database` and `settings`. Only `cli` and `contrib` may import this package. Start in `app`.
"""

from typing import TYPE_CHECKING

from ..values import export_lazily

if TYPE_CHECKING:
    from .app import AdminApp as AdminApp
    from .app import admin_app as admin_app
    from .app import mount as mount
    from .database import Database as Database
    from .security.identity import Authorize as Authorize
    from .security.identity import Identity as Identity
    from .security.identity import Permission as Permission
    from .security.identity import everyone_may as everyone_may
    from .security.sign_in import SignIn as SignIn

export_lazily(
    __name__,
    {
        "app": "AdminApp admin_app mount",
        "database": "Database",
        "security.identity": "Authorize Identity Permission everyone_may",
        "security.sign_in": "SignIn",
    },
)
