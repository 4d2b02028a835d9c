// Bad input to plan and simulate: exit 2, what is wrong and the way out, several problems together; nothing hangs.

#include <chrono>

#include <fmt/core.h>

#include "say.hpp"

namespace mgplan::cli::testing::plan_bad_input_test {
namespace {

using ::testing::HasSubstr;

constexpr const char* kSmall = "--world 16 --model llama3-8b ";

std::string small(const std::string& words) {
    return kSmall + words;
}

TEST(BadInput, MissingOrUnknownNames) {
    expect_refused(std::vector<std::string>{}, {"mgplan --world 16 --model llama3-8b"});
    expect_refused("--world 16", {"--model is missing; give a preset"});
    expect_refused("--model llama3-8b", {"--world is missing; give the number of GPUs"});
    expect_refused("plan", {"--world is missing", "--model is missing"});
    expect_refused("--world 16 --model llama3-9b", {"unknown model 'llama3-9b'", "did you mean llama3-8b"});
    expect_refused(small("--cluster dgx-h10"), {"unknown preset 'dgx-h10'", "dgx-h100"});
    expect_refused(small("--tpp 2"), {"unknown option --tpp", "did you mean --tp"});
    expect_refused(small("extra"), {"unexpected word 'extra'"});
    expect_refused("plam --world 16", {"unknown command 'plam'", "plan"});
}

TEST(BadInput, Files) {
    expect_refused("--world 16 --model ./no/such/config.json", {"./no/such/config.json", "not there", "check the path"});
    TempFile broken("broken.json", "{\n  \"hidden_size\": 4096,\n  \"layers\": [1, 2,}\n");
    expect_refused({"--world", "16", "--model", broken.path()}, {broken.path() + ":3:19"});
    TempFile incomplete(
        "incomplete.json",
        R"({"model_type":"llama","num_hidden_layers":4,"num_attention_heads":8,"intermediate_size":512,"vocab_size":1000})");
    expect_refused({"--world", "16", "--model", incomplete.path()}, {"'hidden_size'", "is missing", "give a whole number"});
    TempFile nested("nested.json", std::string(300'000, '['));
    expect_refused({"--world", "16", "--model", nested.path()}, {"nested deeper than"});
    TempFile binary("binary.json", std::string("{\"\0\xff\xfe", 5) + std::string(100, '\xff'));
    expect_refused({"--world", "16", "--model", binary.path()}, {binary.path()});
    expect_refused({"simulate", broken.path()}, {broken.path() + ":3:19"});
    expect_refused({"simulate", incomplete.path()}, {"this is no plan", "--save-plan"});
    expect_refused("simulate ./no/such/plan.json", {"./no/such/plan.json"});
    expect_refused("simulate --world 16 --megatron-args ./no/such.args", {"./no/such.args"});
}

TEST(BadInput, AbsurdSizesInFiles) {
    const auto config = [](const char* layers, const char* hidden, const char* heads) {
        return fmt::format(
            R"({{"model_type":"llama","num_hidden_layers":{},"hidden_size":{},"num_attention_heads":{},"intermediate_size":512,)"
            R"("vocab_size":1000,"max_position_embeddings":128}})",
            layers, hidden, heads);
    };
    const auto refuse = [&](const char* layers, const char* hidden, const char* heads, const std::vector<std::string>& parts) {
        TempFile file("absurd.json", config(layers, hidden, heads));
        expect_refused({"--world", "16", "--model", file.path()}, parts);
    };
    refuse("1000000000", "512", "8", {"num_hidden_layers = 1000000000 is out of range; give a whole number from 1 to 65536"});
    refuse("9223372036854775808", "512", "8", {"num_hidden_layers = 9223372036854775808"});
    refuse("1e30", "512", "8", {"num_hidden_layers = 1e+30"});
    refuse("NaN", "512", "8", {"num_hidden_layers = \"NaN\" is not a whole number"});
    refuse("0", "-512", "8.5", {"num_hidden_layers = 0", "hidden_size = -512", "num_attention_heads"});
    refuse("\"many\"", "null", "[]", {"num_hidden_layers", "hidden_size", "num_attention_heads"});
}

TEST(BadInput, AbsurdSizesOnTheCommandLine) {
    for (const char* size : {"0", "-1", "9223372036854775808", "1e30", "NaN", "1.5", "sixteen", "", "1000000000", "0x10"}) {
        expect_refused({"--world", size, "--model", "llama3-8b"}, {"--world ", "from 1 to 16777216"});
        expect_refused({"simulate", "--world", "16", "--model", "llama3-8b", "--tp", size}, {"--tp = "});
        expect_refused({"--world", "16", "--model", "llama3-8b", "--pp", size}, {"--pp ", "from 1 to 65536"});
    }
    for (const char* name : {"seq", "global-batch", "micro-batch", "vpp", "top", "threads", "group-size"}) {
        for (const char* size : {"-1", "9223372036854775808", "1e30", "NaN"}) {
            expect_refused({"--world", "16", "--model", "llama3-8b", std::string("--") + name, size}, {fmt::format("--{} = ", name)});
        }
    }
    expect_refused(small("--max-memory -1"), {"--max-memory = '-1' is no size"});
    expect_refused(small("--max-memory 1e30"), {"--max-memory"});
    expect_refused(small("--cluster dgx-h100,memory_gib=nan,node_network_gbits_per_second=1e300"),
                   {"memory_gib", "node_network_gbits_per_second"});
    expect_refused(small("--cluster dgx-h100,gpus_per_node=0,colour=red"), {"gpus_per_node", "unknown key 'colour'"});
}

TEST(BadInput, SizesThatAreAcceptedAloneMayBeTooMuchTogether) {
    expect_refused(small("--seq 134217728 --micro-batch 65536 --global-batch 1048576"), {"micro-batch = 65536", "64 bits"});
    expect_refused("simulate " + small("--seq 134217728 --micro-batch 65536 --global-batch 1048576"), {"micro-batch = 65536", "64 bits"});
}

TEST(BadInput, SizesThatDoNotDivide) {
    expect_refused(small("--tp 6"), {"tp = 6 does not divide world = 16; use 1, 2, 4, 8 or 16"});
    expect_refused("--world 48 --model llama3-8b --tp 6", {"tp = 6 does not divide attention heads = 32; use 1, 2, 4, 8 or 16"});
    expect_refused(small("--tp 2 --cp 2 --pp 8"), {"tp·cp·pp = 2·2·8 does not divide world = 16; use a pp of 1, 2 or 4"});
    expect_refused(small("--tp 6,12 --pp 5"), {"tp = 6 does not divide", "tp·cp·pp = 1·1·5 does not divide"});
    expect_refused("--world 16 --model mixtral-8x7b --ep 3", {"ep = 3 does not divide experts = 8; use 1, 2, 4 or 8"});
    expect_refused("--world 16 --model mixtral-8x7b --etp 5", {"etp = 5 does not divide experts' width = 14336"});
    expect_refused(small("--micro-batch 3"), {"global batch = 1024", "use a micro-batch of 1, 2, 4, 8 or 16"});
    expect_refused(small("--micro-batch 7"), {"multiple of 112; the nearest batches that suit a layout: 1,022 and 1,029"});
    expect_refused("simulate " + small("--tp 3"), {"tp = 3 does not divide world = 16", "tp = 3 does not divide attention heads = 32"});
    expect_refused("simulate --world 64 --model tiny-llama --pp 8", {"pp = 8 has more stages than the model's 4 layers"});
    expect_refused("--world 64 --model tiny-llama --pp 8", {"pp = 8 has more stages than the model's 4 layers; use a pp of at most 4"});
    expect_refused("simulate " + small("--pp 4 --vpp 65536"), {"262144 chunks of 32 layers"});
    expect_refused(small("--pp 4 --vpp 2 --group-size 2"), {"group size = 2 is below pp = 4"});
    expect_refused("simulate " + small("--pp 4 --vpp 2 --group-size 3"), {"group size = 3 is below pp = 4"});
    expect_refused(small("--pp 2 --vpp 2 --no-overlap p2p"), {"vpp = 2 on pp = 2 needs p2p overlap"});
    expect_refused("--world 16 --model mixtral-8x7b --tp 2 --sequence-parallel off", {"tp = 2 with experts needs sequence parallelism"});
    expect_refused(small("--cp 2 --attention unfused"), {"cp = 2 needs flash attention"});
    expect_refused(small("--recompute selective --recompute-modules moe"), {"recompute modules", "which llama3-8b has not"});
}

TEST(BadInput, OrderStrings) {
    expect_refused(small("--order tp-xx-dp-pp"), {"unknown axis 'xx'", "tp-xx-dp-pp\n", "\n       ^"});
    expect_refused(small("--order tp-cp-tp-dp"), {"names tp twice", "^"});
    expect_refused("simulate " + small("--order tp-dp-dp"), {"--order: ", "names dp twice"});
    expect_refused("simulate --world 16 --model mixtral-8x7b --pp 2 --ep 4 --etp 1 --order tp-cp-ep-pp-dp",
                   {"order = tp-cp-ep-pp-dp does not end in pp", "dp = 8 and edp = 2", "put pp last"});
}

TEST(BadInput, LayoutStrings) {
    expect_refused({"--world", "16", "--model", "llama3-8b", "--pipeline-layout", "Et*3|(tt|*29m|L"},
                   {"--pipeline-layout: ", "Et*3|(tt|*29m|L\n", "\n         ^"});
    expect_refused(small("--pipeline-layout Et*3x|L"), {"'x' is no layer", "^"});
    expect_refused(small("--pipeline-layout Et*3|L"), {"holds 3 decoder layers (t), but layers = 32; use 32 t"});
    expect_refused(small("--pipeline-layout tE*3|m|L"), {"begin with E"});
    expect_refused(small("--pipeline-layout Et*999999999999|L"), {"--pipeline-layout"});
    expect_refused("simulate " + small("--pp 4 --pipeline-layout Et*3|L"), {"2 stages, no multiple of pp = 4"});
    // A good string on a pipeline that it does not suit.
    expect_refused(small("--pp 4 --pipeline-layout Et*16|t*16L"), {"2 stages, no multiple of pp = 4"});
}

TEST(BadInput, Conflicts) {
    expect_refused(small("--overlap p2p --no-overlap p2p"), {"--overlap and --no-overlap both name p2p"});
    expect_refused(small("--tp 2 --tp 4"), {"--tp is given twice"});
    expect_refused(small("--pick 2"), {"--pick 2", "add --save-plan FILE"});
    TempFile file("plan.json");
    ASSERT_EQ(say(small("--top 1 --save-plan " + file.path())).code, kDone);
    expect_refused({"simulate", file.path(), "--tp", "2", "--precision", "fp8"},
                   {"--tp cannot be combined with a PLAN", "--precision cannot be combined"});
    expect_refused({"simulate", file.path(), "--world", "16"}, {"--world cannot be combined with a PLAN"});
    TempFile flags("x.args", "--num-layers 2 --micro-batch-size 1");
    expect_refused({"simulate", "--world", "16", "--model", "llama3-8b", "--megatron-args", flags.path()},
                   {"--model and --num-layers of", "both name a model"});
    expect_refused(small("--precision fp8 --cluster dgx-a100-80g"), {"no peak rate for fp8"});
    for (const char* command : {"", "simulate "}) {
        expect_refused(command + small("--cuda-graphs attention"), {"--cuda-graphs = 'attention' is not known; use attn, mlp"});
        expect_refused(command + small("--cuda-graphs moe_router"), {"moe_router needs experts, but"});
        expect_refused(command + small("--cuda-graphs attn,moe_preprocess"), {"moe_preprocess needs moe_router"});
        expect_refused(command + small("--cuda-graphs layer,attn"), {"layer captures all that the other scopes name"});
        expect_refused(command + std::string("--world 8 --model mixtral-8x7b --cuda-graphs moe") + (*command == 0 ? " --search plain" : ""),
                       {"pad the experts to capacity"});
    }
    expect_refused("simulate " + small("--cuda-graphs attn --recompute full"), {"full recompute", "use --recompute none or selective"});
    expect_refused(small("--cuda-graphs attn --recompute full"), {"full recompute", "use --recompute none or selective"});
    expect_refused("simulate " + small("--kind zb-h1"), {"kind = zb-h1 needs a pipeline, but pp = 1"});
    expect_refused("simulate " + small("--kind zb-v --pp 4"), {"--kind zb-v has two model chunks a rank, but vpp = 1; use --vpp 2"});
    expect_refused("simulate " + small("--kind 1f1b"), {"--kind 1f1b does not run on pp = 1 and vpp = 1"});
    expect_refused("simulate " + small("--timeline /nowhere/at/all.json"), {"--timeline = /nowhere/at/all.json cannot be written"});
    expect_refused("simulate " + small("--pp 4 --first-stage-layers 8 --account-for-loss"), {"exclude"});
}

TEST(BadInput, SeveralProblemsTogether) {
    expect_refused(small("--seq 1e30 --global-batch -5 --top 0 --format xml --objective speed --bogus 3"),
                   {"--seq", "--global-batch", "--top", "--format = 'xml'", "--objective = 'speed'", "unknown option --bogus"});
    // Words that cannot be read come first, alone; then what they name.
    expect_refused("--world 16 --model llama3-9b --order tp-xx --top 0", {"unknown axis", "--top = 0"});
    expect_refused("--world 16 --model llama3-9b --cluster dgx-h10 --pipeline-layout q",
                   {"unknown model", "unknown preset", "'q' is no layer"});
    expect_refused("simulate " + small("--order tp-xx --recompute some --cp-comm-type foo"),
                   {"unknown axis", "--recompute = 'some'", "--cp-comm-type = 'foo'"});
}

TEST(BadInput, PicksBeyondTheList) {
    TempFile file("plan.json");
    expect_refused(
        small("--tp 8 --pp 2 --cp 1 --micro-batch 1 --vpp 1 --recompute full --search plain --pick 900 --save-plan " + file.path()),
        {"--pick = 900, but only 2 layouts fit; use 1 to 2"});
    expect_refused(small("--tp 8 --pp 2 --cp 1 --micro-batch 1 --vpp 1 --recompute full --explain 900"), {"--explain = 900"});
    EXPECT_EQ(file.text(), "");
}

TEST(BadInput, AnOutputThatCannotBeWrittenIsFoundBeforeTheSearch) {
    expect_refused(small("--output /no/such/folder/out"),
                   {"--output = /no/such/folder/out cannot be written (No such file or directory)", "name a file in a folder"});
    expect_refused(small("--output /"), {"--output = / cannot be written (Is a directory)"});
}

TEST(BadInput, APlanThatCannotBeWrittenIsFoundBeforeTheSearch) {
    expect_refused(small("--save-plan /no/such/folder/plan.json"),
                   {"--save-plan = /no/such/folder/plan.json cannot be written (No such file or directory)"});
    expect_refused({"--world", "16", "--model", "llama3-8b", "--save-plan", ""}, {"--save-plan is empty; name a file"});
    const TempFile kept("kept.json", "as before"), fresh("fresh.json");
    expect_refused(small("--tp 3 --save-plan " + kept.path() + " --output " + fresh.path()), {"tp = 3 does not divide"});
    EXPECT_EQ(kept.text(), "as before");
    EXPECT_FALSE(std::ifstream(fresh.path()).is_open()) << "what was tried is not left behind";
}

TEST(BadInput, OneFileCannotBeReadAndWrittenOrWrittenTwice) {
    const TempFile config(
        "twice.json", R"({"model_type":"llama","num_hidden_layers":4,"hidden_size":512,"num_attention_heads":8,"intermediate_size":512,)"
                      R"("vocab_size":1000,"max_position_embeddings":128})");
    const std::string text = config.text();
    expect_refused("--world 16 --model " + config.path() + " --save-plan " + config.path(),
                   {"is read, too (--model ", "name another file"});
    expect_refused("models show " + config.path() + " --output " + config.path(), {"is read, too"});
    // The same file by another path.
    expect_refused("--world 16 --model " + config.path() + " --output " + ::testing::TempDir() + "./" +
                       config.path().substr(::testing::TempDir().size()),
                   {"--output = ", "is read, too"});
    EXPECT_EQ(config.text(), text);
    const TempFile out("same.json");
    expect_refused(small("--save-plan " + out.path() + " --output " + out.path()),
                   {"--output and --save-plan both write ", "name two files"});
    const Said devices = say(small("--tp 8 --pp 2 --cp 1 --micro-batch 1 --save-plan /dev/null --output /dev/null"));
    EXPECT_EQ(devices.code, kDone) << devices.err;
}

TEST(BadInput, ASmallSizeWithoutAUnitIsNoSizeInBytes) {
    expect_refused(small("--max-memory 80"), {"--max-memory = 80 has no unit, so it would be 80 bytes; write --max-memory 80GiB"});
    EXPECT_EQ(say(small("--tp 8 --pp 2 --cp 1 --micro-batch 1 --max-memory 80B")).code, kNothingFits);
    EXPECT_EQ(say(small("--tp 8 --pp 2 --cp 1 --micro-batch 1 --max-memory 85899345920")).code, kDone);
}

TEST(BadInput, OptionsThatContradictEachOther) {
    expect_refused(small("--no-distributed-optimizer --overlap param-gather"), {"--overlap param-gather", "--no-distributed-optimizer"});
    expect_refused("simulate --world 16 --model llama3-8b --no-distributed-optimizer --overlap grad-reduce,param-gather", {"drop one"});
    expect_refused("graphs --model mixtral-8x7b --microbatches 8 --ep 3", {"ep = 3 does not divide experts = 8; use 1, 2, 4 or 8"});
}

TEST(BadInput, SaysNoWordTwice) {
    const Said said = say("simulate --world 16 --megatron-args ./no/such.args");
    EXPECT_THAT(said.err, HasSubstr("--megatron-args: argument file ./no/such.args is not there"));
    EXPECT_THAT(say("models shw").err, HasSubstr("mgplan: models: unknown word 'shw'"));
}

TEST(BadInput, HugeButLegalWorldsEnd) {
    const auto begin = std::chrono::steady_clock::now();
    // A power of two, a prime, and a number with 504 divisors.
    for (const char* world : {"16777216", "16777213", "14414400"}) {
        const Said said = say(fmt::format("--world {} --model llama3-8b --top 1", world));
        EXPECT_EQ(said.code, kDone) << world << said.err;
    }
    EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(60));
}

}  // namespace
}  // namespace mgplan::cli::testing::plan_bad_input_test
