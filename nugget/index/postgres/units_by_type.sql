-- Version 2: the columns that questions filter by, in an index of their own.
CREATE INDEX units_filtered ON nugget.units (space, type, source, domain) INCLUDE (key);
