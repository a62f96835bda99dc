-- Version 3: the vectors of a unit stay in its row as long as that fits a page: to fetch them apart takes twice as long.
ALTER TABLE nugget.unit_vectors ALTER embedding SET STORAGE MAIN, ALTER title_embedding SET STORAGE MAIN;
