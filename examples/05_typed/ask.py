import asyncio

from shop import Invoice, Order

from rolecall import HubClient, InvalidRequest


async def main() -> None:
    async with HubClient() as hub:
        invoice = await hub.call("shop", Order(what="tea", count=3), skill="price", returns=Invoice)
        print(f"costs {invoice.total}")

        async with hub.stream("shop", [Order(what="tea", count=3), "for Anna"], skill="pack") as stream:
            async for event in stream:
                if event.progress:
                    print(f"{event.progress.done:g} of {event.progress.total:g}")
                elif event.kind == "text" and event.text:
                    print(event.text)

        try:
            await hub.call("shop", {"count": 0}, skill="price")
        except InvalidRequest as error:
            print(error)


if __name__ == "__main__":
    asyncio.run(main())
