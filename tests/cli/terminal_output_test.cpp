// Text from outside never reaches a terminal as it came: whatever its way in, whatever command shows it.
#include <filesystem>
#include <functional>

#include <nlohmann/json.hpp>

#include "cli/terminal_stream.hpp"
#include "tests/cli/say.hpp"

namespace mgplan::cli::testing::terminal_output_test {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

/// Clears the screen, names the window, rings, goes back to the line's start, begins a sequence in one character, turns writing around.
const std::string kHostile =
    "\x1b[2J\x1b]0;x\x07\rmgplan: all is well\x7f\xc2\x9b"
    "31m\xe2\x80\xae";

Said say_to_terminal(const std::vector<std::string>& args) {
    std::ostringstream out, err;
    Console console{out, err, true};
    const int code = run_mgplan(args, console);
    return {code, out.str(), err.str()};
}

/// Position of the first byte that a terminal would obey, npos where there is none.
std::size_t first_control(const std::string& text) {
    for (std::size_t i = 0; i < text.size(); ++i) {
        const auto c = static_cast<unsigned char>(text[i]);
        if ((c < 0x20 && c != '\n' && c != '\t' && !(c == '\r' && text.compare(i, 2, "\r\n") == 0)) || c == 0x7F) return i;
        if (c == 0xC2 && i + 1 < text.size() && static_cast<unsigned char>(text[i + 1]) < 0xA0) return i;
        if (text.compare(i, 3, "\xe2\x80\xae") == 0) return i;
    }
    return std::string::npos;
}

void expect_harmless(const std::vector<std::string>& args, bool shows = true) {
    SCOPED_TRACE(terminal_text(args.empty() ? "" : args.front() + " " + args.back()));
    const Said said = say_to_terminal(args);
    for (const std::string* text : {&said.out, &said.err}) {
        const std::size_t at = first_control(*text);
        EXPECT_EQ(at, std::string::npos) << terminal_text(text->substr(at == std::string::npos ? 0 : at, 100));
    }
    if (shows) {
        EXPECT_THAT(said.out + said.err, ::testing::AnyOf(HasSubstr("[2J"), HasSubstr("all is well")));
    }
    // No line of a message but the first looks like one of ours.
    EXPECT_THAT(said.err, Not(HasSubstr("\nmgplan: forged")));
}

TEST(TerminalOutput, HasNoControlBytesOfTheCommandLine) {
    expect_harmless({kHostile});
    expect_harmless({"--" + kHostile});
    expect_harmless({"--world", kHostile, "--model", "llama3-8b"});
    expect_harmless({"--world", "8", "--model", kHostile});
    expect_harmless({"--world", "8", "--model", "llama3-8b", "--cluster", kHostile});
    expect_harmless({"--world", "8", "--model", "llama3-8b", "--precision", kHostile});
    expect_harmless({"--world", "8", "--model", "llama3-8b", "--recompute", kHostile});
    expect_harmless({"--world", "8", "--model", "llama3-8b", "--output", "/nowhere/" + kHostile});
    expect_harmless({"models", "show", kHostile});
    expect_harmless({"clusters", "show", kHostile});
    expect_harmless({"simulate", kHostile});
    expect_harmless({"run", kHostile});
    expect_harmless({"export", kHostile, "--to", "megatron-args"});
    expect_harmless({"no such command\nmgplan: forged"}, false);
}

TEST(TerminalOutput, HasNoControlBytesOfFiles) {
    const auto file_of = [](const nlohmann::json& json) { return json.dump(); };
    nlohmann::json model{{"model_type", "llama"},    {"hidden_size", 64}, {"num_hidden_layers", 2},
                         {"num_attention_heads", 4}, {"vocab_size", 512}, {"intermediate_size", 128}};
    const std::vector<std::function<void(nlohmann::json&)>> edits{
        [](auto& json) { json["model_type"] = kHostile; },
        [](auto& json) { json["hidden_size"] = kHostile; },
        [](auto& json) { json[kHostile] = 1; },
        [](auto& json) {
            json["rope_scaling"] = {{"rope_type", kHostile}};
        },
        [](auto& json) { json["hidden_act"] = kHostile; },
        [](auto& json) { json["architectures"] = {kHostile}; },
        [](auto& json) { json["_name_or_path"] = kHostile; },
    };
    for (const auto& edit : edits) {
        nlohmann::json hostile = model;
        edit(hostile);
        const TempFile file("hostile.json", file_of(hostile));
        expect_harmless({"--world", "2", "--model", file.path(), "--global-batch", "8"}, false);
        expect_harmless({"models", "show", file.path()}, false);
    }
    const TempFile broken("broken.json", "{\"a\": " + kHostile);
    expect_harmless({"--world", "2", "--model", broken.path()}, false);
    const TempFile script("hostile.sh", "torchrun pretrain_gpt.py --num-layers 2 --" + kHostile + " 1 --hidden-size '" + kHostile + "'\n");
    expect_harmless({"simulate", "--megatron-args", script.path(), "--world", "2"});
}

TEST(TerminalOutput, HasNoControlBytesOfPlans) {
    const TempFile plan("plan.json");
    ASSERT_EQ(say("--world 2 --model tiny-llama --seq 32 --global-batch 4 --top 1 --save-plan " + plan.path()).code, kDone);
    const nlohmann::json good = nlohmann::json::parse(plan.text());
    // Every text of the plan in turn.
    int changed = 0;
    const nlohmann::json fields = good.flatten();
    for (const auto& [pointer, value] : fields.items()) {
        if (!value.is_string()) continue;
        nlohmann::json hostile = good;
        hostile[nlohmann::json::json_pointer(pointer)] = kHostile;
        const TempFile file("hostile_plan.json", hostile.dump());
        for (const char* command : {"simulate", "groups", "schedule"}) expect_harmless({command, file.path()}, false);
        ++changed;
    }
    EXPECT_GT(changed, 5);
}

TEST(TerminalOutput, LeavesResultsForFilesAndPipesAsTheyAre) {
    std::ostringstream out, err;
    TerminalStream terminal(out);
    terminal << "a" << '\x1b' << 5 << "\n" << std::flush;
    EXPECT_EQ(out.str(), "a\\u001b5\n");
    write_control(terminal, "\r\x1b[K");
    EXPECT_EQ(out.str(), "a\\u001b5\n\r\x1b[K");
    std::ostringstream pipe;
    write_control(pipe, "\r");
    EXPECT_EQ(pipe.str(), "\r");
    // A character in two pieces with a flush between them.
    terminal << "\xc3" << std::flush << "\xa9";
    EXPECT_THAT(out.str(), ::testing::EndsWith("\xc3\xa9"));
    // JSON stays JSON.
    nlohmann::json model{{"model_type", "llama"},    {"hidden_size", 64}, {"num_hidden_layers", 2},   {"num_attention_heads", 4},
                         {"intermediate_size", 128}, {"vocab_size", 512}, {"_name_or_path", kHostile}};
    const TempFile file("named.json", model.dump());
    const std::vector<std::string> words{"models", "show", file.path(), "--format", "json"};
    const Said shown = say_to_terminal(words), piped = say(words);
    ASSERT_EQ(shown.code, kDone) << shown.err;
    EXPECT_EQ(nlohmann::json::parse(shown.out), nlohmann::json::parse(piped.out));
}

}  // namespace
}  // namespace mgplan::cli::testing::terminal_output_test
