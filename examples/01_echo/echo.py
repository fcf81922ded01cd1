from rolecall import Worker

worker = Worker("echo")


@worker.on_message
async def echo(text: str) -> str:
    """Returns what you send."""
    return text


if __name__ == "__main__":
    worker.run()
