// What people type on their first day, one row each: how it ends, and that the message names what was wrong and the way out.
#include <algorithm>
#include <cstdlib>

#include <fmt/core.h>

#include "tests/cli/say.hpp"

namespace mgplan::cli::testing::first_day_inputs_test {
namespace {

using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

/// Files of one test run: models and plans that are none.
struct OddFiles {
    TempFile empty{"odd_empty.json", " "};
    TempFile object{"odd_object.json", "{}"};
    TempFile list{"odd_list.json", "[1, 2]"};
    TempFile comment{"odd_comment.json", "{\"model_type\": \"llama\" // mine\n}"};
    TempFile cut{"odd_cut.json", "{\"model_type\": \"llama\", \"hidden_size\": 40"};
    TempFile huge_number{"odd_number.json", "{\"model_type\": \"llama\", \"hidden_size\": 1e400}"};
    TempFile wrong{"odd_wrong.json",
                   R"({"model_type": "llama", "hidden_size": "big", "num_hidden_layers": -2, "num_attention_heads": 4.5,
                       "vocab_size": 512, "intermediate_size": 128})"};
    TempFile bert{"odd_bert.json",
                  R"({"model_type": "bert", "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "vocab_size": 512,
                      "intermediate_size": 128})"};
    TempFile binary{"odd_binary.bin", std::string("\x7f"
                                                  "ELF\0\1\2\3",
                                                  8) +
                                          std::string(100, '\xee')};
};

struct Row {
    std::vector<std::string> words;
    Parts parts;
};

void expect_clear(const Row& row) {
    std::string command;
    for (const auto& word : row.words) command += word + " ";
    SCOPED_TRACE(command);
    const Said said = say(row.words);
    EXPECT_EQ(said.code, kBadInput);
    EXPECT_EQ(said.out, "");
    for (const auto& part : row.parts) EXPECT_THAT(said.err, HasSubstr(part));
    EXPECT_THAT(said.err, StartsWith("mgplan: "));
    EXPECT_LE(std::count(said.err.begin(), said.err.end(), '\n'), 4) << said.err;
    EXPECT_LT(said.err.size(), 1500U);
    EXPECT_THAT(said.err, ContainsRegex("use |give |did you mean|lists |check the path|write |writes |see |set |name |begin with|shows "
                                        "|remove |needs |plans |expected "))
        << "no way out";
    for (const char* leak : {"internal error", "json.exception", "std::", "terminate", "bad_"}) EXPECT_THAT(said.err, Not(HasSubstr(leak)));
}

TEST(FirstDay, SlipsOnTheCommandLineAreRefusedInOneClearLine) {
    const std::vector<std::string> plan{"--world", "64", "--model", "llama3-8b"};
    const auto with = [&](std::vector<std::string> more) {
        more.insert(more.begin(), plan.begin(), plan.end());
        return more;
    };
    const std::vector<Row> rows{
        {{}, {"needs a world size and a model"}},
        {{"64"}, {"unknown command '64'"}},
        {{"llama3-8b"}, {"llama3-8b is a model, no command", "mgplan --world N --model llama3-8b"}},
        {{"plan"}, {"--world is missing", "--model is missing"}},
        {{"help", "nothing"}, {"unknown command 'nothing'"}},
        {{"-world", "64"}, {"'-world' is not an option; options have two dashes"}},
        {{"--world"}, {"--world needs a value"}},
        {{"--world", "0", "--model", "llama3-8b"}, {"--world = 0 is out of range", "from 1 to"}},
        {{"--world", "-8", "--model", "llama3-8b"}, {"--world = -8 is out of range"}},
        {{"--world", "64gpus", "--model", "llama3-8b"}, {"--world = '64gpus' is not a whole number"}},
        {{"--world", "1e9", "--model", "llama3-8b"}, {"--world = '1e9' is not a whole number"}},
        {{"--world=64", "--model="}, {"model is empty"}},
        {{"--world", "64", "--model", "lama3.1-70b"}, {"lama3.1-70b", "did you mean llama3.1-70b"}},
        {{"--world", "64", "--model", "gpt-5-turbo"}, {"gpt-5-turbo", "mgplan models"}},
        {{"--world", "64", "--model", "no-such-org/no-such-model"}, {"no-such-org/no-such-model", "is no file here"}},
        {{"--world", "64", "--model", "/"}, {"holds no config.json"}},
        {{"--world", "64", "--model", "/dev/null"}, {"/dev/null", "empty"}},
        {with({"--cluster", "dgx-h10"}), {"dgx-h10", "dgx-h100"}},
        {with({"--cluster", "tpu-v5"}), {"tpu-v5", "dgx-h100"}},
        {with({"--tp", "3"}), {"tp = 3 does not divide world = 64; use 1, 2, 4, 8, 16, 32 or 64"}},
        {with({"--tp", "128"}), {"tp = 128 does not divide world = 64"}},
        {with({"--pp", "0"}), {"--pp = 0 is out of range"}},
        {with({"--micro-batch", "7"}), {"global batch = 1024 is no multiple of dp·micro-batch", "use a micro-batch of"}},
        {{"--world", "64", "--model", "mixtral-8x7b", "--ep", "7"}, {"ep = 7 does not divide experts = 8; use 1, 2, 4 or 8"}},
        {with({"--seq", "four"}), {"--seq = 'four'"}},
        {with({"--precision", "int8"}), {"--precision = 'int8' is not known", "bf16"}},
        {with({"--format", "yaml"}), {"--format = 'yaml' is not known; use table, json or csv"}},
        {with({"--max-memory", "80"}), {"--max-memory = 80 has no unit", "80GiB"}},
        {with({"--gpus", "8"}), {"unknown option --gpus; use --world"}},
        {with({"--zero", "3"}), {"unknown option --zero; use --sharding optimizer (stage 1)"}},
        {with({"--micro-batchsize", "1"}), {"unknown option --micro-batchsize", "did you mean --micro-batch"}},
        {with({"--world", "32"}), {"--world is given twice; give it once"}},
        {with({"--top", "many"}), {"--top = 'many' is not a whole number"}},
        {with({"--output", "/no/such/folder/plan.txt"}), {"--output = /no/such/folder/plan.txt cannot be written"}},
        {{"groups", "--world", "8", "--tp", "16"}, {"larger than world = 8; use smaller sizes or a larger world"}},
        {{"models", "show", "gpt5"}, {"unknown model 'gpt5'; see mgplan models"}},
        {{"clusters", "show", "tpu"}, {"'tpu'", "dgx-h100"}},
        {{"completion", "tcsh"}, {"'tcsh' is not known; use bash, zsh or fish"}},
    };
    EXPECT_GE(rows.size(), 33U);
    for (const Row& row : rows) expect_clear(row);
}

TEST(FirstDay, FilesThatAreSomethingElseAreRefusedInOneClearLine) {
    const OddFiles files;
    const auto model = [](const TempFile& file) { return std::vector<std::string>{"--world", "64", "--model", file.path()}; };
    const std::vector<Row> rows{
        {model(files.object), {files.object.path(), "is no model"}},
        {model(files.list), {files.list.path(), "no JSON object"}},
        {model(files.comment), {files.comment.path() + ":1:"}},
        {model(files.cut), {files.cut.path() + ":1:"}},
        {model(files.huge_number), {files.huge_number.path() + ":1:", "number"}},
        {model(files.wrong), {"hidden_size", "num_hidden_layers", "num_attention_heads"}},
        {model(files.bert), {"'bert'", "decoder"}},
        {model(files.binary), {files.binary.path(), "binary"}},
        {{"simulate", files.object.path()}, {files.object.path(), "this is no plan", "--save-plan"}},
        {{"simulate", "llama3-8b"}, {"plan file llama3-8b is not there"}},
        {{"simulate", files.cut.path()}, {files.cut.path() + ":1:"}},
        {{"check"}, {"--megatron-args is missing"}},
        {{"check", "--megatron-args", files.binary.path(), "--world", "8"}, {files.binary.path(), "binary"}},
        {{"run"}, {"run needs a PLAN", "--save-plan"}},
        {{"run", "nothing.json"}, {"plan file nothing.json is not there"}},
        {{"verify"}, {"verify needs a PLAN"}},
        {{"export", files.object.path()}, {"--to is missing; use megatron-args"}},
        {{"export", files.object.path(), "--to", "nemo"}, {"--to = 'nemo' is not known"}},
        {{"launch"}, {"launch needs a PLAN", "--via is missing"}},
    };
    for (const Row& row : rows) expect_clear(row);
}

TEST(FirstDay, TokensMayBeCountedInK) {
    const std::string rest = " --world 8 --model llama3-8b --tp 2 --pp 1 --cp 1";
    for (const std::string command : {"plan --top 1", "simulate --micro-batch 1"}) {
        const Said letters = say(command + rest + " --seq 4k --global-batch-tokens 4M"),
                   digits = say(command + rest + " --seq 4096 --global-batch 1024");
        EXPECT_EQ(letters.code, digits.code) << letters.err;
        EXPECT_THAT(letters.out, HasSubstr("1,024 x 4,096 tokens")) << command;
        const auto head = [](const std::string& text) { return text.substr(0, text.find('\n')); };
        EXPECT_EQ(head(letters.out), head(digits.out));
    }
    EXPECT_THAT(say("plan --top 1" + rest + " --seq 8K --global-batch 64").out, HasSubstr("64 x 8,192 tokens"));
    expect_refused("plan" + rest + " --seq 4q", {"--seq = '4q' is not a whole number; use one from 1 to 134217728, such as 4096 or 4k"});
    expect_refused("plan" + rest + " --seq 1G", {"--seq = 1073741824 is out of range"});
    expect_refused(
        "plan" + rest + " --seq 5000 --global-batch-tokens 4M",
        {"--global-batch-tokens = 4194304 is no multiple of the sequence's 5000 tokens; use 4190000 (838 sequences) or 4195000 (839 "
         "sequences), or another --seq"});
    expect_refused("plan" + rest + " --global-batch 8 --global-batch-tokens 4M", {"both give the batch; give one of them"});
    expect_refused("plan" + rest + " --seq 1 --global-batch-tokens 9G", {"use at most 2147483648 sequences"});
}

TEST(FirstDay, AStatusOfNoJobIsSaid) {
    const std::string folder = ::testing::TempDir() + fmt::format("mgplan_first_day_{}", ::getpid());
    ASSERT_EQ(::setenv("XDG_STATE_HOME", folder.c_str(), 1), 0);
    const Said said = say("status nothing");
    ASSERT_EQ(::unsetenv("XDG_STATE_HOME"), 0);
    EXPECT_EQ(said.code, kBadInput);
    EXPECT_THAT(said.err, HasSubstr("there is no job 'nothing' in " + folder + "/mgplan/jobs; mgplan status lists those there are"));
}

TEST(FirstDay, WhatChangesNothingIsSaidAndDone) {
    const Said said = say("--world 8 --model llama3-8b --ep 2 --top 1");
    EXPECT_EQ(said.code, kDone);
    EXPECT_THAT(said.err, HasSubstr("--ep has no effect: llama3-8b has no experts"));
    EXPECT_EQ(say("--help me").code, kDone);
    EXPECT_EQ(say("--version").code, kDone);
}

}  // namespace
}  // namespace mgplan::cli::testing::first_day_inputs_test
