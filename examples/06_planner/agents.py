import asyncio

from rolecall import BudgetSpent, Task, Worker

planner, researcher, writer = Worker("planner"), Worker("researcher"), Worker("writer")
FACTS = {
    "history": "People have kept bees for 9,000 years.",
    "biology": "A hive has up to 60,000 bees.",
    "economy": "A hive gives 20 kg of honey a year.",
}


@planner.on_message
async def plan(subject: str, task: Task) -> str:
    """Has three sides of a subject researched at once, and an article written of what is found."""
    task.usage(model="small", input_tokens=200, output_tokens=50, cost="0.01")
    replies = await asyncio.gather(*(task.call("researcher", f"{side} of {subject}") for side in FACTS))
    notes = "\n".join(reply.text for reply in replies)
    try:
        return (await task.call("writer", notes)).text
    except BudgetSpent as error:
        spent, budget = error.facts["spentCost"], error.facts["budgetCost"]
        return f"{notes}\n(Only notes: {spent} of {budget} {error.facts['currency']} are spent.)"


@researcher.on_message
async def research(question: str, task: Task) -> str:
    """Knows something about bees."""
    task.usage(model="large", input_tokens=1_000, output_tokens=100, cost="0.05")
    return FACTS[question.split()[0]]


@writer.on_message
async def write(notes: str, task: Task) -> str:
    """Makes one text of notes."""
    task.usage(model="large", input_tokens=600, output_tokens=400, cost="0.08")
    return f"All about bees. {' '.join(notes.splitlines())}"
