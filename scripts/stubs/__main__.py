"""Write the stubs beside their modules."""

from __future__ import annotations

from .files import texts


def main() -> None:
    for path, text in texts().items():
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")
            print(path)


if __name__ == "__main__":
    main()
