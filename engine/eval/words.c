/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/eval/words.h"

#define LIST(...)                                                                                                      \
    {                                                                                                                  \
        (const char *const[]){__VA_ARGS__}, sizeof((const char *const[]){__VA_ARGS__}) / sizeof(char *)                \
    }

const WordList words_names = LIST(
    "Anna", "Ben", "Clara", "David", "Emma", "Frank", "Grace", "Henry", "Iris", "Jack", "Kate", "Leo", "Maria", "Nina",
    "Oscar", "Paul", "Quinn", "Rosa", "Sam", "Tina", "Uma", "Victor", "Wendy", "Xavier", "Yara", "Zoe", "Adam", "Bella",
    "Chris", "Diana", "Eric", "Fiona", "George", "Helen", "Ivan", "Julia", "Kevin", "Laura", "Mark", "Nora", "Oliver",
    "Petra", "Robert", "Sarah", "Thomas", "Ursula", "Vera", "Walter", "Alice", "Bruno", "Cora", "Daniel", "Ella",
    "Felix", "Gloria", "Hugo", "Ida", "Jonas", "Karen", "Lucas", "Mona", "Nathan", "Olga", "Peter");

const WordList words_adjectives =
    LIST("silent", "golden", "gentle", "ancient", "bright", "calm", "clever", "cold", "curious", "dark", "deep",
         "distant", "eager", "early", "empty", "faint", "famous", "fierce", "final", "fresh", "frozen", "giant",
         "grand", "green", "happy", "heavy", "hidden", "hollow", "honest", "humble", "idle", "jolly", "kind", "large",
         "lazy", "light", "little", "lively", "lonely", "loud", "lucky", "mighty", "modern", "narrow", "noble", "odd",
         "patient", "plain", "proud", "quick", "quiet", "rapid", "rare", "rough", "royal", "rusty", "sharp", "shy",
         "simple", "sleepy", "smooth", "steady", "strange", "warm");

const WordList words_nouns =
    LIST("river", "mountain", "garden", "window", "bridge", "castle", "forest", "island", "lantern", "market", "meadow",
         "mirror", "ocean", "palace", "pencil", "piano", "planet", "rabbit", "school", "shadow", "silver", "spider",
         "station", "summer", "table", "temple", "thunder", "tiger", "tower", "train", "valley", "village", "violin",
         "wagon", "water", "whale", "winter", "wolf", "anchor", "apple", "arrow", "basket", "beach", "bell", "blanket",
         "boat", "book", "bottle", "box", "branch", "button", "cabin", "camera", "candle", "carpet", "chair", "church",
         "clock", "cloud", "coin", "corner", "desert", "doctor", "dragon", "drum", "eagle", "engine", "farm", "feather",
         "field", "finger", "fire", "flag", "flower", "guitar", "hammer", "harbor", "hill", "horse", "house", "kitchen",
         "ladder", "lake", "letter", "library", "lion", "lamp", "moon", "museum", "needle", "orange", "paper", "pocket",
         "road", "rocket", "sail");

const WordList words_foods =
    LIST("tea", "coffee", "bread", "cheese", "honey", "rice", "soup", "salad", "cake", "milk", "corn", "fish", "butter",
         "pasta", "lemon", "sugar", "chicken", "chocolate", "pepper", "garlic", "potato", "tomato", "banana", "pizza");

const WordList words_facts = LIST(
    "the pass key of the vault", "the phone number of the doctor", "the price of the red car",
    "the room in which Clara sleeps", "the bus that goes to the airport", "the weight of the blue whale",
    "the length of the northern river", "the year when the bridge was built", "the code for the front door",
    "the population of the village", "the height of the church tower", "the flight that lands at noon",
    "the page with the recipe", "the speed of the new train", "the age of the oldest oak", "the distance to the island",
    "the score of the final match", "the locker of the swimming coach", "the size of the wedding ring",
    "the account of the bakery", "the depth of the well", "the frequency of the radio station",
    "the seat of the conductor", "the licence of the taxi driver", "the temperature of the oven",
    "the number of sheep on the farm", "the model of the printer", "the winning lottery ticket",
    "the shelf with the atlas", "the parking space of the mayor", "the serial number of the piano",
    "the tax on imported silk", "the station where the spies met", "the duration of the eclipse",
    "the prize for the best cake", "the track with the love song", "the version of the game",
    "the street address of the museum", "the pin of the credit card", "the dose of the medicine");
static const WordList verbs = LIST("watched", "followed", "painted", "carried", "crossed", "described", "found", "left",
                                   "moved", "noticed", "reached", "remembered", "repaired", "saw", "sold", "visited");
static const WordList places = LIST("near the old mill", "behind the library", "at the edge of town", "under the trees",
                                    "beside the harbor", "on the other side of the lake", "in a small room",
                                    "along the dusty road", "in front of the station", "not far from the sea");
static const WordList times =
    LIST("in the morning", "after the rain", "before dinner", "late at night", "during the long winter",
         "on a quiet Sunday", "when nobody was looking", "many years ago", "as soon as the sun rose", "for a while");
static const WordList noise =
    LIST("The clouds are white and the field is wide.", "A road goes up, and a road goes down.",
         "Birds fly over the roof and come back again.", "Water runs, leaves fall, days pass.",
         "Nothing happens here, and that is fine.");

bool words_prose(Rng *rng, Buffer *out, Error *error)
{
    const char *adjective = words_pick(&words_adjectives, rng), *noun = words_pick(&words_nouns, rng);
    const char *name = words_pick(&words_names, rng), *verb = words_pick(&verbs, rng);
    const char *object = words_pick(&words_nouns, rng), *place = words_pick(&places, rng);
    const char *time = words_pick(&times, rng);
    switch (rng_below(rng, 4)) {
    case 0:
        return buffer_printf(out, error, "%s %s the %s %s %s %s.\n", name, verb, adjective, noun, place, time);
    case 1:
        return buffer_printf(out, error, "The %s %s stood %s, and %s %s it %s.\n", adjective, noun, place, name, verb,
                             time);
    case 2:
        return buffer_printf(out, error, "There was a %s and a %s %s %s; %s %s both.\n", object, adjective, noun, place,
                             name, verb);
    default:
        return buffer_printf(out, error, "It was %s that %s %s a %s %s.\n", time, name, verb, adjective, object);
    }
}

bool words_noise(Rng *rng, Buffer *out, Error *error)
{
    return buffer_printf(out, error, "%s\n", words_pick(&noise, rng));
}
