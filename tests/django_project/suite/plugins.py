"""A plugin that prints the options of its worker."""

import msgspec

from graphile_worker.values.option_groups import spread


class PrintOptions:
    def install(self, hooks):
        pass

    async def start(self, worker):
        options = worker.options
        flat = spread({name: getattr(options, name) for name in options.__struct_fields__})
        print("options:", msgspec.json.encode(flat).decode(), flush=True)

    async def stop(self):
        pass
