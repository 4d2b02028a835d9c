// The option declarations as JSON and as completion of shells, each tried with the program that reads it.

#include <array>
#include <cstdio>
#include <set>

#include <sys/wait.h>

#include <fmt/core.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "cli/command_description.hpp"
#include "cli/options.hpp"
#include "say.hpp"

namespace mgplan::cli::testing::help_in_other_forms_test {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsSupersetOf;
using ::testing::Not;

/// What a shell's command prints, without the last newline; standard error goes along.
std::string output_of(const std::string& command) {
    FILE* const pipe = ::popen((command + " 2>&1").c_str(), "r");
    if (pipe == nullptr) return "popen failed";
    std::string text;
    std::array<char, 4096> part{};
    while (const std::size_t count = std::fread(part.data(), 1, part.size(), pipe)) text.append(part.data(), count);
    const int status = ::pclose(pipe);
    if (WEXITSTATUS(status) != 0) text += fmt::format("exit status {}", WEXITSTATUS(status));
    while (text.ends_with('\n')) text.pop_back();
    return text;
}

bool is_there(const std::string& program) {
    return !output_of("command -v " + program + " || true").empty();
}

#define NEEDS(program) \
    if (!is_there(program)) GTEST_SKIP() << program << " is not installed"

TEST(Describe, NamesEveryCommandWithTheOptionsItsHelpShows) {
    const auto described = describe_commands();
    ASSERT_EQ(described.size(), commands().size());
    for (const auto& command : described) {
        const std::string help = say(std::vector<std::string>{command.name, "--help"}).out;
        std::set<std::string> shown;
        for (const auto& line : split(help, '\n')) {
            if (line.starts_with("  --")) shown.insert(line.substr(4, line.find_first_of(" ", 4) - 4));
        }
        std::set<std::string> declared;
        for (const auto& group : command.groups) {
            for (const auto& option : group.options) declared.insert(option.name);
        }
        EXPECT_EQ(declared, shown) << command.name;
        EXPECT_FALSE(command.summary.empty()) << command.name;
        EXPECT_FALSE(command.usage.empty()) << command.name;
        EXPECT_FALSE(command.purpose.empty()) << command.name;
    }
}

TEST(Describe, TellsWordsListsAndDefaults) {
    bool flag = false;
    std::string word = "one";
    std::vector<std::string> several{"a", "c"};
    std::int64_t number = 7;
    std::vector<std::string> words;
    Options options("try WORD [options]\ntry again", "Tries.");
    options.flag("quick", flag, "do not wait");
    options.group("More");
    options.choice("word", word, {"one", "two"}, "which");
    options.choices("several", several, {"a", "b", "c"}, "some of them");
    options.integer("number", number, 0, 9, "how many");
    options.positional("WORD", words, 1, "said aloud");
    const CommandDescription told = options.description();
    EXPECT_THAT(told.usage, ElementsAre("try WORD [options]", "try again"));
    EXPECT_EQ(told.purpose, "Tries.");
    EXPECT_THAT(told.positionals, ElementsAre(PositionalDescription{"WORD", "said aloud"}));
    EXPECT_THAT(told.groups, ElementsAre(OptionGroup{"Options", {{"quick", "", "do not wait", "", {}, false}}},
                                         OptionGroup{"More",
                                                     {{"word", "one|two", "which", "one", {"one", "two"}, false},
                                                      {"several", "a|b|c[,...]", "some of them", "a,c", {"a", "b", "c"}, true},
                                                      {"number", "N", "how many", "7", {}, false}}}));
    EXPECT_EQ(command_from_json(to_json(told)), told);
}

TEST(Describe, HelpAsJsonIsOneObject) {
    const Said said = say("simulate --format json --help");
    EXPECT_EQ(said.code, kDone);
    const auto json = nlohmann::json::parse(said.out);
    EXPECT_EQ(json.at("usage").size(), 1U);
    EXPECT_GT(json.at("groups").size(), 2U);
}

TEST(Completion, RefusesShellsItDoesNotKnow) {
    expect_refused("completion tcsh", {"tcsh", "bash, zsh or fish"});
    expect_refused("completion", "needs a shell");
}

/// What bash offers for the last word of a command line.
std::vector<std::string> offered_by_bash(const std::string& line) {
    const TempFile script("completion.bash", say("completion bash").out);
    return split(output_of(fmt::format("bash -c 'source {}; set -u; COMP_WORDS=({}); COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1)); _mgplan; "
                                       "printf \"%s\\n\" \"${{COMPREPLY[@]}}\"'",
                                       script.path(), line)),
                 '\n');
}

TEST(Completion, OfBashOffersCommandsOptionsAndWords) {
    NEEDS("bash");
    EXPECT_THAT(offered_by_bash("mgplan sim"), ElementsAre("simulate"));
    EXPECT_THAT(offered_by_bash("mgplan --wor"), ElementsAre("--world"));
    EXPECT_THAT(offered_by_bash("mgplan schedule --for"), IsSupersetOf({"--forward-only", "--format"}));
    EXPECT_THAT(offered_by_bash("mgplan schedule --kind z"), ElementsAre("zb-h1", "zb-h2", "zb-v"));
    EXPECT_THAT(offered_by_bash("mgplan --model llama3-8"), ElementsAre("llama3-8b"));
    EXPECT_THAT(offered_by_bash("mgplan simulate --cluster = dgx-h2"), ElementsAre("dgx-h200"));
    EXPECT_THAT(offered_by_bash("mgplan --recompute none,se"), ElementsAre("none,selective"));
    EXPECT_THAT(offered_by_bash("mgplan simulate --tp \"\""), Not(Contains("--world"))) << "a number is wanted";
}

TEST(Completion, OfBashOffersFilesWhereFilesAreRead) {
    NEEDS("bash");
    const TempFile plan("a plan.json", "{}");
    const auto words = offered_by_bash("mgplan run \"" + plan.path().substr(0, plan.path().size() - 5) + "\"");
    EXPECT_THAT(words, ElementsAre(plan.path()));
}

std::string offered_by_fish(const std::string& line) {
    const TempFile script("completion.fish", say("completion fish").out);
    return output_of(fmt::format("HOME=/nonexistent fish --no-config -c 'source {}; complete -C \"{}\"'", script.path(), line));
}

TEST(Completion, OfFishOffersCommandsOptionsAndWords) {
    NEEDS("fish");
    EXPECT_EQ(offered_by_fish("mgplan simu"), "simulate\tpredict memory and time of one layout");
    EXPECT_THAT(offered_by_fish("mgplan schedule --ki"), ::testing::StartsWith("--kind\t"));
    EXPECT_THAT(offered_by_fish("mgplan --recompute none,sel"), ::testing::StartsWith("none,selective"));
    EXPECT_THAT(offered_by_fish("mgplan simulate --model llama3-8"), ::testing::StartsWith("llama3-8b\t"));
    EXPECT_EQ(offered_by_fish("mgplan schedule --pp "), "") << "a number is wanted, no file";
}

TEST(Completion, OfZshCompletesALineThatIsTyped) {
    NEEDS("zsh");
    const TempFile script("completion.zsh", say("completion zsh").out);
    // A shell on a terminal of its own; each tab completes what stands alone.
    const TempFile typed("typed.zsh", fmt::format(R"(zmodload zsh/zpty
zpty shell zsh -f -i
zpty -w shell $'autoload -Uz compinit; compinit -u -D; source {}; mgplan() {{ print -r -- "got <$*>" }}; echo RE""ADY'
zpty -r shell seen '*READY*'
zpty -w shell $'mgplan sche\t--ki\tdual\t; echo DO""NE'
zpty -r shell seen '*DONE*'
print -r -- $seen
zpty -d shell
)",
                                                  script.path()));
    EXPECT_THAT(output_of("timeout 60 zsh -f " + typed.path()), HasSubstr("got <schedule --kind dualpipe-v>"));
}

}  // namespace
}  // namespace mgplan::cli::testing::help_in_other_forms_test
