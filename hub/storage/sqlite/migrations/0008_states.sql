-- Lists by state, and their counts, without a look at the rows. Completed tasks, nearly all of a table's, are not in it: lists of
-- them go through task_newest. A plain call adds one entry and removes it again.
create index task_state on task (workspace, caller, state, updated, id, role) where state <> 'completed';
