-- How many tasks a caller has in each role, so that a page of a list can return the total without counting.
create table tally (
  workspace text not null,
  caller    text not null,
  role      text not null,
  tasks     integer not null,
  primary key (workspace, caller, role)
) strict, without rowid;

insert into tally select workspace, caller, role, count(*) from task where not hidden group by workspace, caller, role;

create trigger task_counted after insert on task when not new.hidden begin
  insert into tally values (new.workspace, new.caller, new.role, 1)
  on conflict (workspace, caller, role) do update set tasks = tasks + 1;
end;

create trigger task_hidden after update of hidden on task when new.hidden and not old.hidden begin
  update tally set tasks = tasks - 1 where workspace = new.workspace and caller = new.caller and role = new.role;
end;

create trigger task_uncounted after delete on task when not old.hidden begin
  update tally set tasks = tasks - 1 where workspace = old.workspace and caller = old.caller and role = old.role;
  delete from tally where workspace = old.workspace and caller = old.caller and role = old.role and tasks = 0;
end;
