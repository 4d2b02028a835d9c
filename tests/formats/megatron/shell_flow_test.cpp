// Which statements of a launch script count: conditions, functions, arguments, and values that are given from outside.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "formats/megatron/megatron_arguments.hpp"
#include "formats/megatron/shell_blocks.hpp"
#include "formats/megatron/shell_script.hpp"
#include "formats/megatron/shell_test.hpp"
#include "plan/text/errors.hpp"

namespace mgplan::formats::shell_flow_test {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using Words = std::vector<std::string>;

const std::string kTrain = "python train.py --num-layers 2 --tensor-model-parallel-size $TP\n";

ArgumentWords read(const std::string& script, const ScriptInputs& inputs = {}) {
    return script_words(script, "train.sh", "", inputs);
}

/// The value of the command's last flag.
std::string tp_of(const std::string& script, const ScriptInputs& inputs = {}) {
    return read(script + kTrain, inputs).words.back();
}

ScriptInputs arguments(Words words) {
    return {std::move(words), {}};
}

TEST(ShellConditions, AreToldByKnownVariables) {
    const auto truth = [](const std::string& condition) {
        Variables variables;
        variables.assign("A", "a");
        variables.assign("N", "8");
        variables.assign("E", "");
        variables.assign("P", "x", true);
        return truth_of(condition, variables, "train.sh");
    };
    for (const std::string yes :
         {"[ $A = a ]", "[ \"$A\" == 'a' ]", "[ $N -ge 8 ]", "[[ $A == a && $N -gt 4 ]]", "[ -z \"$E\" ]", "[ -n \"$A\" ]", "[ ! -z $A ]",
          "(( N > 4 ))", "(( $N == 8 ))", "[ $A = b ] || [ $N = 8 ]", "! [ $A = b ]", "true", "test $N -lt 9", "[ $A = a -a $N = 8 ]",
          "[ $A = b -o $N = 8 ]", "[[ $A == ? ]]", "[[ abc == a* ]]", "[[ $UNSET == x || $A == a ]]"})
        EXPECT_EQ(truth(yes), std::optional(true)) << yes;
    for (const std::string no : {"[ $A = b ]", "[ $A != a ]", "[ -n \"$E\" ]", "[ \"$E\" ]", "(( N < 4 ))", "false", "[[ $A == b* ]]",
                                 "[ $A = a ] && [ $N = 4 ]", "[[ $UNSET == x && $A == b ]]"})
        EXPECT_EQ(truth(no), std::optional(false)) << no;
    for (const std::string open :
         {"[ $UNSET = a ]", "[ -f train.sh ]", "grep -q x file", "[ $(nproc) -gt 4 ]", "[ $P = x ]", "[[ $A =~ a.* ]]", "[[ $A == [ab] ]]",
          "[ $A -gt 4 ]", "", "[ $A = a", "[ $A = 'a ]", "[ $A = a ] || [ $N = 8 ] && [ $N = 9 ]"})
        EXPECT_EQ(truth(open), std::nullopt) << open;
}

TEST(ShellConditions, ChooseTheBranchThatRuns) {
    const std::string branches =
        "if [ $SIZE = small ]; then\n  TP=1\n  if [ $DEEP = 1 ]; then TP=3; fi\nelif [ \"$SIZE\" == big ]\nthen\n  TP=8 # fi\nelse\n  echo "
        "'fi'\n  TP=2\nfi\n";
    EXPECT_EQ(tp_of("SIZE=small DEEP=0\nDEEP=0\nSIZE=small\n" + branches), "1");
    EXPECT_EQ(tp_of("DEEP=1\nSIZE=small\n" + branches), "3") << "nested, on one line";
    EXPECT_EQ(tp_of("DEEP=1\nSIZE=big\n" + branches), "8");
    EXPECT_EQ(tp_of("DEEP=1\nSIZE=else\n" + branches), "2");
    EXPECT_THAT(read("SIZE=big\n" + branches + kTrain).notes, IsEmpty()) << "nothing is in doubt";
    EXPECT_THAT(read(branches + kTrain).notes, Contains(HasSubstr("sets TP in an if, case or loop"))) << "SIZE may come from outside";
    EXPECT_EQ(tp_of("TP=4\ncat <<EOF\nif it stays open\nEOF\nif [ -z \"$TP\" ]; then TP=1; fi\n"), "4") << "a text is no statement";
    EXPECT_EQ(tp_of("TP=4\nif [ $TP = 4 ]; then\n  TP=2\n"), "2") << "an if that stays open";
}

TEST(ShellFunctions, AreReadWhereTheyAreCalled) {
    EXPECT_EQ(tp_of("set_tp() {\n  TP=$1\n}\nTP=1\nset_tp 8\n"), "8");
    EXPECT_EQ(tp_of("function set_tp {\n  local n=$(( $1 * 2 ))\n  TP=$n\n}\nTP=1\n"), "1") << "never called";
    EXPECT_THAT(read("run() {\n  python train.py \"$@\" --bf16\n}\nA=( --num-layers 2 )\nrun \"${A[@]}\" --lr 1 2>&1 | tee log\n").words,
                ElementsAre("--num-layers", "2", "--lr", "1", "--bf16"));
    EXPECT_THAT(read("run() {\n  python train.py --num-layers 2 --bf16\n}\nsrun bash -c \"$(declare -f run); run\"\n").words,
                ElementsAre("--num-layers", "2", "--bf16"))
        << "called in a way that is not followed";
    EXPECT_EQ(tp_of("f() {\n  TP=4\n  return\n  TP=8\n}\nf\n"), "4");
    EXPECT_EQ(tp_of("TP=2\nf() { f; }\nf\n"), "2") << "one that calls itself";
    EXPECT_EQ(tp_of("usage() {\n  echo wrong\n  exit 1\n}\nTP=2\n"), "2");
}

TEST(ShellArguments, AreThoseOfTheScript) {
    EXPECT_EQ(tp_of("TP=$2\n", arguments({"a", "8"})), "8");
    EXPECT_EQ(tp_of("TP=${2:-4}\n", arguments({"a"})), "4");
    EXPECT_EQ(tp_of("TP=$#\n", arguments({"a", "b", "c"})), "3");
    EXPECT_EQ(tp_of("shift\nTP=$1\n", arguments({"a", "16"})), "16");
    EXPECT_EQ(tp_of("set -- 1 32\nTP=$2\n"), "32");
    EXPECT_THAT(read("python train.py --num-layers 2 \"$@\"\n", arguments({"--bf16", "--lr", "1"})).words,
                ElementsAre("--num-layers", "2", "--bf16", "--lr", "1"));
    EXPECT_THAT(read("python train.py --num-layers 2 ${@:2}\n", arguments({"x", "--bf16"})).words,
                ElementsAre("--num-layers", "2", "--bf16"));
    EXPECT_EQ(tp_of("TP=$1\n"), "$TP") << "not known";
    EXPECT_EQ(tp_of("if [ $# -ne 1 ]; then\n  echo usage\n  exit 1\nfi\nTP=$1\n", arguments({"2"})), "2");
    EXPECT_THROW((void)read("if [ $# -ne 1 ]; then\n  exit 1\nfi\nTP=$1\n" + kTrain, arguments({})), ConfigError);
}

TEST(ShellArguments, AreGoneThroughByALoop) {
    const std::string loop =
        "TP=1\nwhile [[ $# -gt 0 ]]; do\n  case \"$1\" in\n    --tp) TP=$2; shift 2 ;;\n    --tp=*) TP=${1#*=}\n      shift ;;\n    -*)\n  "
        "    "
        "shift\n      ;;\n    *) exit 1 ;;\n  esac\ndone\n";
    EXPECT_EQ(tp_of(loop, arguments({"--quiet", "--tp", "8"})), "8");
    EXPECT_EQ(tp_of(loop, arguments({"--tp=16", "-x"})), "16");
    EXPECT_EQ(tp_of(loop, arguments({})), "1");
    EXPECT_THAT(read(loop + kTrain).unresolved, testing::Contains(testing::Pair("TP", HasSubstr("sets it"))))
        << "without the arguments, what the loop sets is not known";
    EXPECT_THAT(read("TP=$(nproc)\npython train.py --num-layers 2 --tensor-model-parallel-size ${TP:-1}\n").words.back(), "${TP:-1}")
        << "a default is for what is not set";
    try {
        (void)read(loop + kTrain, arguments({"x"}));
        FAIL() << "accepted";
    } catch (const ConfigError& error) {
        EXPECT_THAT(error.what(), HasSubstr("train.sh exits at line 10, before any command with a model's flags; give it other values"));
    }
}

/// Scripts ask so for what their environment has to set.
TEST(ShellVariables, AreWantedFromOutside) {
    const std::string guard = "if [ -z \"${BASE:-}\" ]; then\n  echo BASE is not set\n  exit 1\nfi\n";
    EXPECT_EQ(tp_of(guard + "TP=2\n"), "2");
    EXPECT_THAT(read(guard + "TP=$BASE\n" + kTrain).words, testing::Contains("$TP"));
    EXPECT_THROW((void)read("if [ -z \"${BASE:-}\" ] || true; then\n  exit 1\nfi\nTP=2\n" + kTrain), ConfigError);
}

TEST(ShellVariables, AreGivenFromOutside) {
    const ScriptInputs given{std::nullopt, {{"TP", "8"}, {"MORE", "--bf16 --lr 1"}}};
    EXPECT_EQ(tp_of("TP=$(nvidia-smi -L | wc -l)\n", given), "8");
    EXPECT_EQ(tp_of("TP=2\nfor TP in 1 2; do echo; done\nread TP\n", given), "8") << "whatever the script assigns";
    EXPECT_EQ(tp_of("TP=$((TP / 2))\nTWICE=$((TP * 2))\nTP=$TWICE\n", given), "8");
    EXPECT_THAT(read("MORE=( --fp16 )\npython train.py --num-layers 2 $MORE\n", given).words,
                ElementsAre("--num-layers", "2", "--bf16", "--lr", "1"))
        << "a text of flags";
    const ArgumentWords misspelt =
        argument_words("T=2\npython train.py --num-layers 2 --lr $T\n", "train.sh", "", {std::nullopt, {{"PT", "8"}}});
    EXPECT_THAT(misspelt.missing, ElementsAre("--set PT: train.sh names no such variable; check its spelling"));
    EXPECT_THAT(argument_words("MODEL_ARGS:\n  --num-layers: 2\n  --lr: ${LR}\n", "a.yaml", "", {std::nullopt, {{"LR", "3"}}}).words,
                ElementsAre("--num-layers", "2", "--lr", "3"));
}

TEST(ShellBlocks, EndWhereTheirWordsDo) {
    const std::string text = "if a; then b; elif c; then\n d\nelse e; fi; more";
    const auto found = if_statement(text);
    ASSERT_TRUE(found);
    ASSERT_EQ(found->branches.size(), 3U);
    EXPECT_EQ(found->branches[0].test.of(text), " a; ");
    EXPECT_EQ(found->branches[1].body.of(text), "\n d\n");
    EXPECT_TRUE(found->branches[2].otherwise);
    EXPECT_EQ(text.substr(found->behind), "; more");
    const std::string loop = "while x; do\n for i in 1; do y; done\ndone < file\n";
    const auto whole = while_loop(loop);
    ASSERT_TRUE(whole);
    EXPECT_EQ(whole->body.of(loop), "\n for i in 1; do y; done\n");
    EXPECT_EQ(loop.substr(whole->behind), " < file\n");
    const std::string function = "f-1 () {\n { x; }\n}\nrest";
    const auto definition = function_definition(function);
    ASSERT_TRUE(definition);
    EXPECT_EQ(definition->name, "f-1");
    EXPECT_EQ(function.substr(definition->behind), "\nrest");
    for (const std::string open : {"if a; then b", "if a; fi", "if a; then b; else c; else d; fi", "ifx; then y; fi", "if 'a; then b; fi"})
        EXPECT_FALSE(if_statement(open)) << open;
    EXPECT_FALSE(while_loop("while x; done"));
    EXPECT_FALSE(function_definition("f() {\n x\n"));
    std::string deep;
    for (int i = 0; i < 100; ++i) deep += "if a; then\n";
    for (int i = 0; i < 100; ++i) deep += "fi\n";
    EXPECT_FALSE(if_statement(deep)) << "nested too deeply";
}

TEST(ShellScript, FollowsNoMoreThanItHasTimeFor) {
    // Each statement is looked at up to its end: many that stay open, and calls that double each other.
    std::string open, doubling;
    for (int i = 0; i < 60'000; ++i) open += "if a; then b\nf() {\nwhile x; do shift\n";
    (void)read(open + kTrain);
    for (int i = 0; i < 40; ++i)
        doubling += "f" + std::to_string(i) + "() {\n f" + std::to_string(i + 1) + "\n f" + std::to_string(i + 1) + "\n}\n";
    (void)read(doubling + "f0\n" + kTrain);
}

}  // namespace
}  // namespace mgplan::formats::shell_flow_test
