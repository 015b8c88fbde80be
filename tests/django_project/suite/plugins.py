"""A plugin that prints the options of its worker."""

import msgspec


class PrintOptions:
    def install(self, hooks):
        pass

    async def start(self, worker):
        print("options:", msgspec.json.encode(worker.options).decode(), flush=True)

    async def stop(self):
        pass
