-- Every task has a public context from its admission. The task's id is as hard to guess as a new one, and as unlikely to repeat.
update task set context = id where context = '';
