-- Graphile Worker, revision 20: the whole schema in one transaction.
--
-- For a database that does not have it yet. Run it once, as the role that is to own the objects; the workers
-- then find everything in place. Running it again changes nothing: the first row of the ledger is there
-- already, the statement fails with a duplicate key, and the transaction is rolled back as a whole. To
-- upgrade a schema that is older, use `graphile-worker migrate`.

begin;
-- Suppresses notices that an object to be replaced does not exist.
set local client_min_messages = warning;
