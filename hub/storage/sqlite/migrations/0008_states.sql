-- Lists by state, and their counts, without a look at the rows. Completed tasks, nearly all of a table's, are not in it: lists of
-- them go through task_newest. Nor are tasks that their worker has not answered yet, so that a plain call writes nothing here: lists
-- of them go through task_idle.
create index task_state on task (workspace, caller, state, updated, id, role) where state not in ('completed', 'submitted');
