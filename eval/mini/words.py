"""The vocabulary of the small worlds."""


def listed(text: str) -> tuple[str, ...]:
    """Words of a text, as a list that is easy to read and to lengthen."""
    return tuple(text.split())


FIRST = listed(
    "Martha Anton Clara Edwin Nora Felix Agnes Hugo Ida Jonas Lena Oscar Petra Ruben Sylvia Tobias Vera Walter Greta "
    "Simon Alma Bruno Doris Emil Flora Gustav Hanna Igor Judith Karl Lydia Magnus Nadia Otto Paula Quentin Rosa "
    "Stefan Thea Ulrich"
)
LAST = listed(
    "Brook Castell Dunmore Elwood Farrow Garnet Holloway Ingram Jarvis Kettle Larkin Merrow Norwood Oakes Penrose "
    "Quill Radley Sutter Thorne Underhill Vance Whitlock Yardley Ashby Birch Calloway Draper Ellery Finch Grove "
    "Hartley Ives Jessop Kirby Lambert Mosley Nettle Orchard Pritchard Rowan"
)
TOWN_PREFIXES = ("New ", "Upper ", "Little ", "Great ", "East ", "West ", "Nether ", "Market ")
RIVER_PREFIXES = ("Black ", "White ", "Lower ", "Cold ", "Swift ", "Long ", "Still ", "Old ")
SUBJECT_PREFIXES = ("early ", "wild ", "late ", "white ", "summer ", "winter ", "coastal ", "mountain ")
SIDES = listed("behind near inside beside")
TOWNS = listed(
    "Aldham Bramford Carnwick Dunmere Elstead Fenport Glendale Hazelgate Ivybridge Kelworth Langley Marness Norbury "
    "Oxcombe Penfield Quarhill Ravenscar Stanmouth Thornby Ulverton Wendover Yarrow Ashford Brookside Coldwell "
    "Deerpark Emberley Farnham Grimsby Holton"
)
MATERIALS = listed(
    "brass copper silver wooden paper leather glass velvet stone steel woollen painted golden wicker marble tin "
    "striped yellow purple crooked"
)
OBJECTS = listed(
    "key lantern violin teapot compass ladder umbrella mirror basket bell drum kite clock saddle anchor candle flute "
    "hammer lamp map mask needle oar parcel quilt rope saw trunk whistle wheel"
)
PLACES = listed(
    "bakery harbour library chapel mill station orchard market bridge stable school theatre lighthouse garden quarry "
    "museum tavern workshop cemetery fountain barn pier forge greenhouse tower"
)
SUBJECTS = listed(
    "barley copper salmon willow clover granite honey wool moss oyster pepper rye sparrow tulip walnut beetle cedar "
    "flax heron juniper lavender mustard otter poppy raven sage thistle turnip vanilla wheat"
)
RIVERS = listed(
    "Ister Marl Tavy Orne Lune Wharf Severin Dovey Kennet Tamar Ouse Yarrow Calder Medway Avonel Brent Colne Derwen "
    "Esk Frome Gade Humble Irwell Kyle Leven Mersal Nidder Otter Plym Rother"
)
INSTRUMENTS = listed(
    "cello harp trumpet banjo organ oboe flute piano viola clarinet guitar tuba accordion mandolin zither bassoon"
)
INSTRUMENT_PREFIXES = ("small ", "silver ", "wooden ", "loud ", "borrowed ", "steel ")
SHIPS = listed(
    "Mermaid Albatross Hercules Dolphin Swallow Victoria Neptune Pelican Aurora Falcon Comet Sirius Magpie Triton "
    "Bonita Walrus Petrel Diana Cormorant Phoenix"
)
SHIP_PREFIXES = ("Golden ", "Brave ", "Second ", "Royal ", "Swift ", "Grey ")
DAYS = listed("Monday Tuesday Wednesday Thursday Friday Saturday Sunday")
MONTHS = listed("January February March April May June July August September October November December")
ADJECTIVES = listed("grand narrow quiet busy dusty crowded famous small modern noisy cold bright low long plain steep")
MOODS = listed("calm tired proud curious cheerful worried patient glad silent stubborn hopeful thoughtful")
WEATHER = listed("rain fog frost snow wind heat mist thunder hail drizzle sunshine cloud")
