"""The members of the client by subject, such as `utils.jobs`: each module has the class of one of them."""
