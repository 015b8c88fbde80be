"""The methods of the client by subject: each module has a base class of `WorkerUtils`."""
