// Pickles byte by byte as pickle.dumps(value, protocol=4) of CPython 3.11 writes them, without its frame. tests/cli/memory_snapshot_test.py
// reads whole ones with Python.

#include "reports/pickle.hpp"

#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <sstream>
#include <string>
#include <string_view>

namespace mgplan::reports::pickle_test {
namespace {

using namespace std::string_view_literals;

template <class Write>
std::string pickled(const Write& write) {
    std::ostringstream out;
    PickleWriter pickle(out);
    write(pickle);
    pickle.finish();
    return std::move(out).str();
}

TEST(Pickle, WritesNumbersAsPython) {
    struct Case {
        std::int64_t number;
        std::string_view bytes;
    };
    for (const auto& [number, bytes] :
         {Case{0, "K\0"sv}, Case{255, "K\xff"sv}, Case{256, "M\0\x01"sv}, Case{65535, "M\xff\xff"sv}, Case{65536, "J\0\0\x01\0"sv},
          Case{-1, "J\xff\xff\xff\xff"sv}, Case{std::numeric_limits<std::int32_t>::max(), "J\xff\xff\xff\x7f"sv},
          Case{std::int64_t{1} << 31, "\x8a\x05\0\0\0\x80\0"sv}, Case{std::numeric_limits<std::int32_t>::min(), "J\0\0\0\x80"sv},
          Case{-(std::int64_t{1} << 31) - 1, "\x8a\x05\xff\xff\xff\x7f\xff"sv}, Case{0x7f0000000000, "\x8a\x06\0\0\0\0\0\x7f"sv},
          Case{std::numeric_limits<std::int64_t>::max(), "\x8a\x08\xff\xff\xff\xff\xff\xff\xff\x7f"sv},
          Case{std::numeric_limits<std::int64_t>::min(), "\x8a\x08\0\0\0\0\0\0\0\x80"sv}}) {
        const std::string written = pickled([number = number](PickleWriter& pickle) { pickle.number(number); });
        EXPECT_EQ(written, "\x80\x04" + std::string(bytes) + ".") << number;
    }
}

TEST(Pickle, WritesRepeatedTextsAndListsOnce) {
    const std::string written = pickled([](PickleWriter& pickle) {
        pickle.open_list();
        const std::uint32_t list = pickle.remember();
        pickle.text("a");
        pickle.append();
        pickle.text("a");
        pickle.append();
        pickle.recall(list);
        pickle.append();
    });
    EXPECT_EQ(written,
              "\x80\x04]\x94\x8c\x01"
              "a\x94"
              "ah\x01"
              "ah\0a."sv);
}

TEST(Pickle, WritesDictionariesPairsAndTruth) {
    const std::string written = pickled([](PickleWriter& pickle) {
        pickle.open_dict();
        pickle.text("k");
        pickle.truth(true);
        pickle.truth(false);
        pickle.pair();
        pickle.close_dict();
    });
    EXPECT_EQ(written, "\x80\x04}(\x8c\x01k\x94\x88\x89\x86u."sv);
}

TEST(Pickle, ReachesValuesBeyondTheFirst256) {
    const std::string written = pickled([](PickleWriter& pickle) {
        pickle.open_list();
        for (int i = 0; i < 300; ++i) {
            pickle.text(std::to_string(i));
            pickle.append();
        }
        pickle.text("299");
        pickle.append();
    });
    EXPECT_TRUE(written.ends_with("j\x2b\x01\0\0a."sv));
}

TEST(Pickle, WritesLongTextsWithFourBytesOfLength) {
    const std::string text(256, 'x');
    EXPECT_EQ(pickled([&](PickleWriter& pickle) { pickle.text(text); }), std::string("\x80\x04X\0\x01\0\0"sv) + text + "\x94.");
}

}  // namespace
}  // namespace mgplan::reports::pickle_test
