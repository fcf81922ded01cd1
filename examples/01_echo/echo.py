from worker_sdk import Worker

worker = Worker("echo")


@worker.on_message
async def echo(text: str) -> str:
    """Says what you say."""
    return text


if __name__ == "__main__":
    worker.run()
