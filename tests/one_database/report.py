"""What is printed: item, command, result."""


class Report:
    """The lines of a run, printed as they come."""

    def __init__(self) -> None:
        self.rows = 0
        self.wrong: list[str] = []

    def title(self, text: str) -> None:
        print(f"\n{text}\n", flush=True)

    def row(self, item: str, command: str, result: object, *, holds: bool = True) -> None:
        """Print one; `holds`: it is as it has to be."""
        self.rows += 1
        if not holds:
            self.wrong.append(item)
        print(f"{'ok   ' if holds else 'WRONG'} {item}", flush=True)
        print(f"      $ {command}", flush=True)
        print(f"      {result}", flush=True)

    def end(self) -> int:
        """Print what was wrong, and return the exit code."""
        print(f"\n{self.rows} items, {len(self.wrong)} wrong", flush=True)
        for item in self.wrong:
            print(f"- {item}", flush=True)
        return 1 if self.wrong else 0
