#include "cli/options.hpp"

#include <sstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace mgplan::cli::options_test {
namespace {

using ::testing::HasSubstr;

struct Declared {
    Options options{"demo [options]", "A command for tests."};
    std::int64_t world = 8;
    std::vector<std::int64_t> tp;
    bool verbose = false;
    std::string mode = "auto";
    std::optional<std::int64_t> memory;
    std::ostringstream out;

    Declared() {
        options.integer("world", world, 1, 100, "number of GPUs");
        options.integers("tp", tp, 1, 100, "tensor parallel sizes");
        options.flag("verbose", verbose, "say more");
        options.choice("mode", mode, {"auto", "on", "off"}, "how");
        options.bytes("max-memory", memory, "limit");
    }
};

TEST(Options, ReadsValuesAndKeepsDefaults) {
    Declared d;
    ASSERT_TRUE(d.options.parse({"--world", "16", "--tp=1,2,2", "--verbose", "--max-memory", "1GiB"}, d.out));
    EXPECT_EQ(d.world, 16);
    EXPECT_EQ(d.tp, (std::vector<std::int64_t>{1, 2}));
    EXPECT_TRUE(d.verbose);
    EXPECT_EQ(d.mode, "auto");
    EXPECT_EQ(d.memory, 1 << 30);
    EXPECT_TRUE(d.options.given("world"));
    EXPECT_FALSE(d.options.given("mode"));
}

TEST(Options, ReportsEveryProblemAtOnce) {
    Declared d;
    try {
        (void)d.options.parse({"--wrld", "16", "--tp", "x", "--mode", "maybe", "--world", "0", "stray", "--max-memory"}, d.out);
        FAIL() << "accepted";
    } catch (const ConfigError& error) {
        const std::string text = error.what();
        EXPECT_THAT(text, HasSubstr("unknown option --wrld; did you mean --world?"));
        EXPECT_THAT(text, HasSubstr("--tp = 'x' is not a whole number"));
        EXPECT_THAT(text, HasSubstr("--mode = 'maybe' is not known; use auto, on or off"));
        EXPECT_THAT(text, HasSubstr("--world = 0 is out of range"));
        EXPECT_THAT(text, HasSubstr("unexpected word 'stray'"));
        EXPECT_THAT(text, HasSubstr("--max-memory needs a value"));
    }
}

TEST(Options, NamesOfOtherProgramsLeadToTheOptionHere) {
    const auto refused = [](const char* word) {
        Declared d;
        try {
            (void)d.options.parse({word, "16"}, d.out);
        } catch (const ConfigError& error) {
            return std::string(error.what());
        }
        return std::string();
    };
    EXPECT_EQ(refused("--gpus"), "unknown option --gpus; use --world");
    EXPECT_EQ(refused("--json"), "unknown option --json; use --format json");
    EXPECT_EQ(refused("--gbs"), "unknown option --gbs; --help lists the options") << "which this command does not have";
}

TEST(Options, TextsStandInPlaceOfFiles) {
    std::ostringstream out, err;
    Console console{out, err};
    console.texts = {{"data", {"my data", "{}"}}, {"PLAN", {"my plan", "[]"}}};
    const auto declared = [](Options& options, std::optional<std::string>& data, std::vector<std::string>& plans) {
        options.text("data", data, "FILE", "what is read");
        options.positional("PLAN", plans, 1, "a plan");
    };
    Options options("demo [options]", "A command for tests.");
    std::optional<std::string> data;
    std::vector<std::string> plans;
    declared(options, data, plans);
    options.use_texts(console);
    ASSERT_TRUE(options.parse({}, out));
    EXPECT_EQ(data, "my data");
    EXPECT_EQ(plans, std::vector<std::string>{"my plan"});
    EXPECT_TRUE(options.given("data"));
    ASSERT_NE(options.contents("PLAN"), nullptr);
    EXPECT_EQ(options.contents("PLAN")->text, "[]");
    EXPECT_EQ(options.contents("other"), nullptr);

    Options twice("demo [options]", "A command for tests.");
    declared(twice, data, plans);
    twice.use_texts(console);
    EXPECT_THAT(
        [&] {
            (void)twice.parse({"--data", "file", "plan.json"}, out);
        },
        ::testing::Throws<ConfigError>(
            ::testing::Property(&ConfigError::problems,
                                ::testing::UnorderedElementsAre("unexpected word 'plan.json'; options begin with --, and --help lists them",
                                                                "--data is given twice; give it once"))));
    Declared d;
    EXPECT_THROW(d.options.use_texts(console), ConfigError);
}

TEST(Options, HelpShowsEveryOptionWithItsDefault) {
    Declared d;
    EXPECT_FALSE(d.options.parse({"--help"}, d.out));
    EXPECT_THAT(d.out.str(), HasSubstr("usage: mgplan demo [options]"));
    EXPECT_THAT(d.out.str(), HasSubstr("number of GPUs (default: 8)"));
    EXPECT_THAT(d.out.str(), HasSubstr("--format"));
}

}  // namespace
}  // namespace mgplan::cli::options_test
