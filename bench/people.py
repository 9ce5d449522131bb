"""A made-up library: a table of people, notes about birth and height that name none of them, and questions."""

from __future__ import annotations

import csv
import random
from datetime import date, timedelta
from pathlib import Path
from typing import NamedTuple

PEOPLE, SHARED, NOTES = 700, 40, 40
"""People, last names that two of them have, and notes."""
FIRST = (
    "Adam Agnes Ahmed Alice Amir Ana Anders Anna Antonio Astrid Ayla Beatriz Benjamin Carla Carlos Chen Clara Daniel"
    " David Diego Dmitri Elena Elif Emil Emma Erik Eva Fatima Felix Fiona Francesca Gabriel Georg Grace Hana Hannah"
    " Hassan Helena Hugo Ibrahim Igor Ines Ingrid Irina Isabel Ivan Jakob Jana Javier Joana Johan John Jonas Jorge"
    " Julia Kaito Karim Katarina Kofi Lars Laura Leila Lena Leo Lina Louis Lucas Lucia Luis Magnus Malik Marco Maria"
    " Marta Martin Mateo Maya Mehmet Mia Mikael Milan Mina Nadia Naomi Nikola Nina Noah Nora Olga Oliver Omar Oscar"
    " Paula Paulo Pavel Pedro Peter Petra Rafael Rania Rosa Samir Samuel Sara Sofia Stefan Tariq Teresa Thomas Tomas"
    " Vera Victor Viktoria Yara Yuki Yusuf Zoe"
).split()
HEADS = (
    "Al An Ar Ba Bel Ber Bo Bran Cal Car Cor Da Del Dor Dra Fal Fer Gar Gol Gru Hal Har Hol Jan Kal Kar Kor Kra Lan"
    " Lin Lo Mar Mel Mor Nav Nor Ol Or Pal Per Pol Ra Ren Ros Sal San Sil Sor Sta Tal Tor Val Ver Vor Wal Zan"
).split()
TAILS = (
    "aldi anov ano beck berg bowski din do dottir ela ero esco etti ez ford gaard hagen ic idis iev ikov ina ini ko"
    " land lund man mann mura nen ni oglu ola oni ova owicz quez ra rini san sen shi son stein ston strom ta ti va vic"
    " ville wood yan zade"
).split()
QUESTIONS = (
    "When was {} born?",
    "How tall is {}?",
    "What is the date of birth of {}?",
    "What is the height of {}?",
    "In which year was {} born?",
    "How many metres tall is {}?",
    "On which day was {} born?",
    "How old is {}?",
)
SUBJECTS = (
    "When a child is born", "How tall people grow", "Dates of birth in registers", "Measuring height", "Birthdays",
    "Height and age", "Born in another year", "Tall and small families",
)  # fmt: skip
SENTENCES = (
    "A child who was born in {month} is often the youngest of its class.",
    "The date of birth is written as year, month and day; {year} was the first year in which every office did so.",
    "Nobody knows when most people before {year} were born, for births were not written down.",
    "How tall somebody is depends on parents, on food and on illness before the age of {age}.",
    "People are measured without shoes; a height of {height} metres is read at the top of the head.",
    "In the evening everybody is about {centimetres} centimetres less tall than in the morning.",
    "The mean height of grown men rose from {low} to {height} metres within a century.",
    "Whoever was born on the last day of February has a birthday in every fourth year only.",
    "A birth has to be told to the register within {age} days; the date of birth cannot be changed later.",
    "How old a person is follows from the year in which the person was born.",
    "Twins are born within minutes of each other, and yet one may be {centimetres} centimetres taller.",
    "A new-born child is about half a metre long, and is a metre tall at the age of four.",
    "Somebody who is taller than {height} metres has to bend in the doors of houses built before {year}.",
    "Those who were born in the winter of {year} were smaller, and stayed so.",
    "At which date a person was born matters for school, for work and for the pension.",
    "The height of a person is given in metres here, and in feet elsewhere.",
    "Who is born at sea has the place of birth that the captain writes down.",
    "More children were born in {month} of {year} than in any month before.",
)


class Person(NamedTuple):
    """A row of the table."""

    name: str
    born: str
    height: str


def people(seed: int = 11) -> list[Person]:
    """People with names of their own; all first names occur often, some last names twice."""
    chance = random.Random(seed)
    every = sorted({head + tail for head in HEADS for tail in TAILS})
    last = chance.sample(every, PEOPLE - SHARED)
    last += last[:SHARED]
    found: list[Person] = []
    names: set[str] = set()
    for family in last:
        first = chance.choice([name for name in FIRST if f"{name} {family}" not in names])
        names.add(f"{first} {family}")
        born = date(1940, 1, 1) + timedelta(days=chance.randrange(24_000))
        found.append(Person(f"{first} {family}", born.isoformat(), f"{chance.gauss(1.74, 0.09):.2f}"))
    chance.shuffle(found)
    return found


def write(folder: Path, persons: list[Person], seed: int = 12) -> None:
    """Write the table as CSV, and the notes as Markdown."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "people.csv").open("w", encoding="utf-8", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(("name", "date of birth", "height"))
        rows.writerows(persons)
    chance = random.Random(seed)
    for number in range(NOTES):
        subject = SUBJECTS[number % len(SUBJECTS)]
        sentences = [_filled(sentence, chance) for sentence in chance.sample(SENTENCES, 6)]
        text = f"# {subject}, part {number // len(SUBJECTS) + 1}\n\n" + "\n".join(sentences) + "\n"
        (folder / f"note-{number + 1:02}.md").write_text(text, encoding="utf-8")


def _filled(sentence: str, chance: random.Random) -> str:
    return sentence.format(
        month=chance.choice(("January", "March", "May", "June", "August", "October", "December")),
        year=chance.randrange(1850, 2000),
        age=chance.randrange(3, 21),
        height=f"{chance.uniform(1.6, 2.0):.2f}",
        low=f"{chance.uniform(1.5, 1.6):.2f}",
        centimetres=chance.randrange(1, 4),
    )


def questions(
    persons: list[Person], count: int, templates: tuple[str, ...], seed: int
) -> list[tuple[str, Person]]:
    """Questions about people drawn at random, by each template in turn, with the person meant."""
    drawn = random.Random(seed).sample(persons, count)
    return [(templates[n % len(templates)].format(person.name), person) for n, person in enumerate(drawn)]
