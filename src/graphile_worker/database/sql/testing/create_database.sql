-- Make a database as a copy of another one. Both names are written in as quoted identifiers, because this
-- statement takes no parameters.
create database :DATABASE template :TEMPLATE
