-- A trigger makes SQLite keep copies of all pages that a statement changes, to undo the statement alone. What these did is done by
-- the code that writes the tasks, once for a batch or only where there is a webhook.
drop trigger task_counted;
drop trigger task_hidden;
drop trigger task_uncounted;
drop trigger task_owes;
