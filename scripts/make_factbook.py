"""Makes `data_synthesis/data/factbook.jsonl.xz` from the World Factbook's facts and field lines.

    python -m scripts.make_factbook FACTS.jsonl WEB.jsonl.xz [--out FILE]

FACTS holds one [subject, relation, object, source value] a line and is carried whole, row for row. WEB holds one page
{"id", "text"} a line; of its text only the field lines named in `FIELDS` are read, and only typed values are taken
from them: a number, a year, a code, a noun of a closed list. No prose is copied. What cannot be read without doubt is
left out. The same inputs give the same bytes.
"""

import argparse
import json
import lzma
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

Row = tuple[str, str, str, str]

OUT = Path(__file__).parent.parent / "data_synthesis" / "data" / "factbook.jsonl.xz"

RESOURCES = (
    "hydropower;iron ore;fish;copper;gold;timber;petroleum;arable land;natural gas;zinc;coal;salt;lead;limestone;"
    "bauxite;nickel;silver;uranium;phosphates;gypsum;tin;manganese;tungsten;diamonds;marble;clay;potash;cobalt;"
    "rare earth elements;molybdenum;kaolin;chromite;antimony;lignite;asbestos;graphite;mercury;sand;peat;platinum;"
    "tantalum;chromium;forests;sulfur;feldspar;niobium;pumice;fluorspar;mica;magnesite;pyrites;vanadium;magnesium;"
    "granite;titanium;gemstones;wildlife;coconuts;shrimp;diatomite;building stone;chalk;barite;dolomite;amber;soda ash;"
    "talc;rubber;quartz;cassiterite;lobster;lithium;emeralds;guano;silica;asphalt;whales;bismuth;cadmium;krill;squid;"
    "pearls;slate;arsenic;oil shale;nitrates;seals;coffee;palm oil;conch;methane;zircon;perlite;emery"
).split(";")
RESOURCE_SPELLINGS = {
    "oil": "petroleum",
    "phosphate": "phosphates",
    "phosphate rock": "phosphates",
    "hydropower potential": "hydropower",
    "hydroelectric potential": "hydropower",
    "iron": "iron ore",
    "low-grade iron ore": "iron ore",
    "chromium ore": "chromium",
    "chrome": "chromium",
    "chrome ore": "chromium",
    "titanium ore": "titanium",
    "copper ore": "copper",
    "industrial diamonds": "diamonds",
    "gem diamonds": "diamonds",
    "diamond": "diamonds",
    "clays": "clay",
    "pyrite": "pyrites",
    "rock salt": "salt",
    "silica sand": "silica",
    "hardwood timber": "timber",
    "hard coal": "coal",
    "brown coal": "lignite",
    "rare earth metals": "rare earth elements",
    "rare earth oxides": "rare earth elements",
    "coconut": "coconuts",
    "spiny lobster": "lobster",
    "barites": "barite",
    "gems": "gemstones",
    "precious stones": "gemstones",
}
RELIGIONS = (
    "Muslim;Sunni Muslim;Christian;Roman Catholic;Catholic;Protestant;Orthodox;Buddhist;Hindu;Jewish;Sikh;Animist;"
    "Anglican;Lutheran;Evangelical Lutheran;Mormon;Baha'i;Methodist;Baptist;Evangelical;Pentecostal;Adventist;"
    "Seventh Day Adventist;Jehovah's Witness;Kimbanguist;Vodoun;Druze;Shintoism;Taoist;Zionist;Zionist Christian;"
    "Ethiopian Orthodox;Eastern Orthodox;Greek Orthodox;Serbian Orthodox;Macedonian Orthodox;Russian Orthodox;"
    "Bulgarian Orthodox;Armenian Apostolic;Coptic Christian;Lamaistic Buddhist;Kirant;Badimo;Church of Norway;"
    "Church of Ireland;Assembly of God;Indigenous beliefs;Congregational;Presbyterian;Spiritist;Confucianist"
).split(";")
RELIGION_SPELLINGS = {
    "christianity": "Christian",
    "islam": "Muslim",
    "buddhism": "Buddhist",
    "taoism": "Taoist",
    "orthodox christian": "Orthodox",
    "jehovah's witnesses": "Jehovah's Witness",
    "seventh-day adventist": "Seventh Day Adventist",
    "kimbanguiste": "Kimbanguist",
    "indigenous": "Indigenous beliefs",
    "traditional": "Indigenous beliefs",
    "traditionalists": "Indigenous beliefs",
    "greek orthodox christian": "Greek Orthodox",
    "hinduism": "Hindu",
    "nominally roman catholic": "Roman Catholic",
    "baha'is": "Baha'i",
    "animists": "Animist",
}
NEIGHBOURS = {
    "Democratic Republic of the Congo": "DRC",
    "Republic of the Congo": "Congo",
    "Dominican Republic": "The Dominican",
}
"""Names of the border lists that the subjects of FACTS spell otherwise."""

REGION_SPELLINGS = {
    "Southeast Europe": "Southeastern Europe",
    "interior Western Africa": "Western Africa",
    "north-eastern Africa": "Northeastern Africa",
    "south Central Europe": "Central Europe",
}

_REGION_MAX = 4  # words; what is longer describes a place instead of naming a region
_LIST_MAX = 6


def outside_brackets(text: str) -> str:
    """`text` without what stands in round brackets, nested ones included; an unclosed bracket ends it."""
    depth, kept = 0, []
    for character in text:
        depth += character == "("
        if depth == 0:
            kept.append(character)
        depth -= character == ")" and depth > 0
    return "".join(kept)


def clauses(text: str) -> list[str]:
    """`text` cut at semicolons that stand in no bracket."""
    depth, parts = 0, [""]
    for character in text:
        depth += (character == "(") - (character == ")" and depth > 0)
        if character == ";" and depth == 0:
            parts.append("")
        else:
            parts[-1] += character
    return [part.strip() for part in parts]


def number(text: str) -> Iterator[tuple[str, str]]:
    """The number a field begins with, decimals dropped; millions written out."""
    found = re.match(r"([\d,]+)(\.\d+)?( million)?\b(?!\.)", text)
    if found is None or (len(clauses(text)) > 1 and not clauses(text)[1].startswith(("note", "551,500"))):
        return
    whole = int(found[1].replace(",", ""))
    if found[3]:
        whole = round((whole + float(found[2] or 0)) * 1_000_000)
    if whole or found[2] is None:
        yield f"{whole:,}", clauses(text)[0]


def independence(text: str) -> Iterator[tuple[str, str]]:
    """The year, when every dated clause agrees on one and the first says from whom or how."""
    dated = []
    for clause in clauses(text):
        if clause.startswith(("note", "notable")):
            break
        found = re.match(r"(?:\d{1,2} \w+ )?(\d{4})\b *(\((from|declared|Czechoslovakia split)|$)", clause)
        other = re.search(r"\b\d{4}\b", outside_brackets(clause))
        if found is None and other is not None:
            return
        if found is not None:
            dated.append((found[1], clause.partition(" (")[0]))
    if len({year for year, _ in dated}) == 1:
        yield dated[0]


def region(text: str) -> Iterator[tuple[str, str]]:
    first = outside_brackets(re.split(r"[,;]", text)[0]).strip()
    if len(first.split()) <= _REGION_MAX and not re.search(
        r"\b(island|islands|archipelago|bordering|portion)\b", first
    ):
        yield REGION_SPELLINGS.get(first, first), first


def code(text: str) -> Iterator[tuple[str, str]]:
    found = re.match(r"\.[a-z]{2}(?=$|;)", text)
    if found:
        yield found[0], found[0]


def nouns(known: list[str], spellings: dict[str, str]) -> Callable[[str], Iterator[tuple[str, str]]]:
    """A reader of lists that takes the nouns of `known`, at most `_LIST_MAX`, in the source's order."""
    canonical = {noun.lower(): noun for noun in known} | spellings

    def read(text: str) -> Iterator[tuple[str, str]]:
        taken: dict[str, str] = {}
        for item in re.split(r"[,;]", outside_brackets(text)):
            plain = re.sub(r"\s*(less than|more than|about)?\s*[\d.]+ ?%?.*$", "", item.strip()).strip()
            noun = canonical.get(plain.lower())
            if noun is not None:
                taken.setdefault(noun[0].upper() + noun[1:], item.strip())
        yield from list(taken.items())[:_LIST_MAX]

    return read


def neighbours(text: str) -> Iterator[tuple[str, str]]:
    for item in re.split(r", (?=[A-Z])", outside_brackets(text)):
        name = re.sub(r"\s+[\d.,]+ km.*$", "", item).strip()
        if name in NEIGHBOURS:
            yield NEIGHBOURS[name], item.strip()


FIELDS: dict[str, tuple[str, Callable[[str], Iterator[tuple[str, str]]]]] = {
    "Location": ("region", region),
    "Area / total": ("area", number),
    "Population": ("population", number),
    "Coastline": ("coastline", number),
    "Independence": ("independence", independence),
    "Internet country code": ("internet code", code),
    "Natural resources": ("natural resource", nouns(RESOURCES, RESOURCE_SPELLINGS)),
    "Religions": ("religion", nouns(RELIGIONS, RELIGION_SPELLINGS)),
    "Land boundaries / border countries": ("borders", neighbours),
}


def field_rows(page_id: str, text: str, subjects: set[str]) -> Iterator[Row]:
    """Rows of the fields of one page "<section> of <subject>"."""
    subject = page_id.partition(" of ")[2]
    if subject not in subjects:
        return
    for line in text.split("\n"):
        name, _, value = line.partition(": ")
        if name in FIELDS:
            relation, read = FIELDS[name]
            for obj, words in read(value.strip()):
                yield subject, relation, obj, words


def rows(facts: Path, web: Path) -> list[Row]:
    with facts.open(encoding="utf-8") as file:
        carried: list[Row] = [tuple(json.loads(line)) for line in file if line.strip()]
    subjects = {row[0] for row in carried}
    known = {row[:3] for row in carried}
    found: list[Row] = []
    with lzma.open(web, "rt", encoding="utf-8") as file:
        for line in file:
            page = json.loads(line)
            found += [row for row in field_rows(page["id"], page["text"], subjects) if row[:3] not in known]
    return carried + sorted(dict.fromkeys(found), key=lambda row: (row[0], row[1]))


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Make the embedded facts file.")
    parser.add_argument("facts", type=Path)
    parser.add_argument("web", type=Path)
    parser.add_argument("--out", type=Path, default=OUT)
    args = parser.parse_args(argv)
    made = rows(args.facts, args.web)
    text = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in made)
    args.out.write_bytes(lzma.compress(text.encode("utf-8"), preset=9 | lzma.PRESET_EXTREME))
    print(f"{args.out}: {len(made)} rows, {args.out.stat().st_size} bytes")
    return 0


if __name__ == "__main__":
    sys.exit(main())
