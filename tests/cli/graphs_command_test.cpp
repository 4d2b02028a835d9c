// The command graphs: formats and bad input. Its counts are held by tests/golden and tests/plan, its bytes by
// tests/simulator/memory.

#include <nlohmann/json.hpp>

#include "say.hpp"

namespace mgplan::cli::testing::graphs_command_test {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::StartsWith;

TEST(GraphsCommand, PrintsJsonAsDocumented) {
    const Said said = say("graphs --pp 2 --microbatches 4 --layers-per-chunk 3 --format json");
    EXPECT_EQ(said.code, kDone) << said.err;
    EXPECT_EQ(
        said.out,
        R"({"policy":"slots","cuda_graphs":["layer"],"ranks":[{"rank":0,"forward_graphs":6,"backward_graphs":6,"static_buffers":6,)"
        R"("slots":2,"peak_live_chunks":2,"static_input_bytes":null,"boundary":[{"name":"hidden_states","bytes":null}],"boundary_bytes":null},)"
        R"({"rank":1,"forward_graphs":3,"backward_graphs":3,"static_buffers":3,"slots":1,"peak_live_chunks":1,)"
        R"("static_input_bytes":null,"boundary":[{"name":"hidden_states","bytes":null}],"boundary_bytes":null}]})"
        "\n");
    EXPECT_THAT(said.err, IsEmpty());
}

TEST(GraphsCommand, PrintsCsvAndTable) {
    EXPECT_EQ(say("graphs --pp 2 --microbatches 4 --layers-per-chunk 3 --policy megatron --format csv").out,
              "rank,forward_graphs,backward_graphs,static_buffers,slots,peak_live_chunks\n0,12,12,6,2,2\n1,12,12,3,1,1\n");
    const Said table = say("graphs --pp 128 --vpp 2 --microbatches 256 --layers-per-chunk 1,2");
    EXPECT_THAT(table.out, HasSubstr("... 64 ranks in the middle left out"));
    for (const auto& line : split(table.out, '\n')) EXPECT_LE(line.size(), 100U) << line;
}

TEST(GraphsCommand, TakesTheLayersOfAModel) {
    const Said said = say("graphs --pp 4 --microbatches 8 --model llama3-8b --format csv");
    EXPECT_THAT(said.out, HasSubstr("\n0,32,32,32,4,4,"));
    EXPECT_THAT(said.err, IsEmpty());
    // The first three layers of DeepSeek-V3 have no router, the 58 others and its MTP layer do.
    EXPECT_THAT(say("graphs --microbatches 8 --model deepseek-v3 --cuda-graphs moe_router --format csv").out,
                HasSubstr("\n0,59,59,59,1,1,"));
    EXPECT_THAT(say("graphs --microbatches 8 --model deepseek-v3 --cuda-graphs mlp --format csv").out, HasSubstr("\n0,3,3,3,1,1,"));
    EXPECT_THAT(say("graphs --microbatches 8 --pp 3 --layers-per-chunk 2 --cuda-graphs full_iteration --format csv").out,
                HasSubstr("\n0,1,0,8,0,3\n1,1,0,0,0,2\n2,1,0,8,0,1\n"));
    EXPECT_THAT(say("graphs --microbatches 8 --layers-per-chunk 2 --cuda-graphs full_iteration --format csv").out,
                HasSubstr("\n0,1,0,16,0,1\n"))
        << "ids and targets";
    EXPECT_THAT(say("graphs --microbatches 8 --layers-per-chunk 2 --cuda-graphs none --format csv").out, HasSubstr("\n0,0,0,0,1,1\n"));
    EXPECT_THAT(say("graphs --microbatches 8 --layers-per-chunk 2 --cuda-graphs attn,moe_router --format json").out,
                HasSubstr(R"("boundary":[{"name":"hidden_states","bytes":null},{"name":"probabilities","bytes":null},)"));
}

TEST(GraphsCommand, SaysTheBytesOfAModel) {
    const Said said = say("graphs --pp 4 --microbatches 8 --model llama3-8b --tp 2 --seq 4096 --format json");
    ASSERT_EQ(said.code, kDone) << said.err;
    const auto json = nlohmann::json::parse(said.out);
    // Hidden states of a rank: 4,096 tokens over tp 2 with sequence parallelism, 4,096 values, bf16.
    constexpr std::int64_t kStream = 2048 * 4096 * 2;
    const auto& first = json.at("ranks").at(0);
    EXPECT_EQ(first.at("static_input_bytes"), 32 * kStream);
    EXPECT_EQ(first.at("boundary"), nlohmann::json::parse(R"([{"name":"hidden_states","bytes":67108864}])"));
    EXPECT_EQ(first.at("boundary_bytes"), 4 * kStream);
    EXPECT_EQ(first.at("graph_object_bytes"), first.at("graph_nodes").get<std::int64_t>() * 65536);
    EXPECT_EQ(json.at("tensors").at(0).at("shape"), nlohmann::json::parse("[2048,1,4096]"));
    EXPECT_EQ(json.at("tensors").at(0).at("source"), "core/transformer/transformer_layer.py");
    EXPECT_FALSE(json.contains("moe_capture"));
    // Twice the micro-batch, twice the bytes; four-byte values once more; without sequence parallelism the whole sequence.
    const auto inputs = [](const std::string& options) {
        const Said other = say("graphs --pp 4 --microbatches 8 --model llama3-8b --tp 2 --seq 4096 --format json " + options);
        return nlohmann::json::parse(other.out).at("ranks").at(0).at("static_input_bytes").get<std::int64_t>();
    };
    EXPECT_EQ(inputs("--micro-batch 2"), 64 * kStream);
    EXPECT_EQ(inputs("--precision fp32"), 64 * kStream);
    EXPECT_EQ(inputs("--sequence-parallel off"), 64 * kStream);
    EXPECT_EQ(inputs("--cp 2"), 16 * kStream);
    EXPECT_EQ(inputs("--cuda-graphs none"), 0);
}

TEST(GraphsCommand, SetsPaddedExpertsBesidePartialCapture) {
    const std::string command = "graphs --pp 2 --microbatches 4 --model mixtral-8x7b --ep 8 ";
    const auto json = nlohmann::json::parse(say(command + "--format json").out);
    EXPECT_EQ(json.at("cuda_graphs"), nlohmann::json::parse(R"(["attn","moe_router","moe_preprocess"])"));
    const auto& variants = json.at("moe_capture");
    ASSERT_EQ(variants.size(), 3U);
    EXPECT_TRUE(variants[0].at("capacity_factor").is_null());
    EXPECT_EQ(variants[1].at("capacity_factor"), 1);
    EXPECT_EQ(variants[1].at("extra_rows"), 0);
    EXPECT_EQ(variants[2].at("capacity_factor"), 4);  // 8 experts, 2 a token: nothing is ever dropped
    EXPECT_GT(variants[2].at("extra_flops"), 0);
    EXPECT_GT(variants[2].at("extra_traffic_bytes"), 0);
    EXPECT_GT(variants[2].at("peak_bytes"), variants[1].at("peak_bytes"));
    EXPECT_EQ(nlohmann::json::parse(say(command + "--capacity-factor 1.25 --format json").out).at("moe_capture").size(), 2U);
    const Said table = say(command + "--policy slots");
    EXPECT_THAT(table.out, HasSubstr("Experts outside the graphs, or padded inside them"));
    EXPECT_THAT(table.out, HasSubstr("permuted_hidden_states"));
    for (const auto& line : split(table.out, '\n')) EXPECT_LE(line.size(), 120U) << line;
}

TEST(GraphsCommand, TakesAPlan) {
    const TempFile file("graphs_plan.json");
    const std::string& path = file.path();
    ASSERT_EQ(say("plan --search plain --world 8 --model llama3-8b --tp 1 --pp 4 --vpp 2 --micro-batch 1 --global-batch 32 --max-memory "
                  "10TB --save-plan " +
                  path)
                  .code,
              kDone);
    const Said said = say("graphs " + path + " --format csv");
    EXPECT_EQ(said.code, kDone) << said.err;
    // As Megatron-LM captures, whose engine the plan has.
    EXPECT_EQ(said.out, say("graphs --pp 4 --vpp 2 --microbatches 16 --model llama3-8b --policy megatron --format csv").out);
    EXPECT_EQ(say("graphs " + path + " --policy slots --format csv").out,
              say("graphs --pp 4 --vpp 2 --microbatches 16 --model llama3-8b --format csv").out);
    // Recompute that no graph of a layer can hold gives way to graphs that nobody asked for.
    const TempFile full("graphs_plan_full.json");
    ASSERT_EQ(say("plan --search plain --world 8 --model llama3-8b --tp 1 --pp 4 --micro-batch 1 --recompute full --max-memory 10TB "
                  "--save-plan " +
                  full.path())
                  .code,
              kDone);
    EXPECT_THAT(say("graphs " + full.path()).out, HasSubstr("no recompute, which such graphs cannot hold"));
    expect_refused("graphs " + full.path() + " --cuda-graphs attn", "full recompute");
    expect_refused("graphs " + path + " --pp 2", "a PLAN holds what --pp says");
    expect_refused("graphs " + path + " --tp 2", "a PLAN holds what --tp says");
    expect_refused("graphs " + path + " --cuda-graphs moe_router", "moe_router needs experts");
}

TEST(GraphsCommand, OfAPlanCountsTheBytesThatSimulateDoes) {
    for (const std::string engine : {"megatron", "mgplan"}) {
        const TempFile file("graphs_of_engine.json");
        const std::string& path = file.path();
        ASSERT_EQ(say("plan --world 8 --model llama3-8b --tp 1 --pp 2 --vpp 2 --micro-batch 1 --global-batch 32 --cuda-graphs attn "
                      "--max-memory 10TB --engine " +
                      engine + " --save-plan " + path)
                      .code,
                  kDone);
        const auto predicted =
            nlohmann::json::parse(say("simulate " + path + " --max-memory 10TB --format json").out).at("predicted").at("memory");
        const auto counted = nlohmann::json::parse(say("graphs " + path + " --format json").out);
        const auto rank = predicted.at("worst_rank").get<std::size_t>() / 4;  // of two pipeline ranks with four GPUs each
        EXPECT_EQ(counted.at("policy"), engine == "mgplan" ? "slots" : engine);
        EXPECT_EQ(counted.at("ranks").at(rank).at("static_input_bytes"), predicted.at("high_water").at("graph_static_inputs")) << engine;
    }
}

TEST(GraphsCommand, RefusesBadInput) {
    expect_refused("graphs", "--microbatches is missing");
    expect_refused("graphs --microbatches 4", "--layers-per-chunk is missing");
    expect_refused("graphs --microbatches 4 --layers-per-chunk 1 --model llama3-8b", "exclude each other");
    expect_refused("graphs --microbatches 4 --layers-per-chunk 1,2", "--layers-per-chunk lists 2 chunks, but vpp = 1");
    expect_refused("graphs --microbatches 4 --layers-per-chunk 1,x", "--layers-per-chunk");
    expect_refused("graphs --microbatches 4 --layers-per-chunk -1", "--layers-per-chunk");
    expect_refused("graphs --microbatches 4 --layers-per-chunk 9223372036854775808", "--layers-per-chunk");
    expect_refused("graphs --microbatches 3 --pp 4 --vpp 2 --layers-per-chunk 1", "microbatches");
    expect_refused("graphs --microbatches 16777216 --pp 65536 --layers-per-chunk 1", "use fewer microbatches, chunks or ranks");
    expect_refused("graphs --microbatches 8 --pp 40 --model llama3-8b", "makes more chunks than llama3-8b has layers = 32");
    expect_refused("graphs --microbatches 4 --layers-per-chunk 1 --cuda-graphs moe_preprocess", "moe_preprocess needs moe_router");
    expect_refused("graphs --microbatches 4 --layers-per-chunk 1 --cuda-graphs attention", "--cuda-graphs = 'attention' is not known");
    expect_refused("graphs --microbatches 4 --model llama3-8b --cuda-graphs moe_router", "moe_router needs experts");
    expect_refused("graphs --microbatches 4 --layers-per-chunk 1 --policy fifo", "--policy = 'fifo' is not known; use slots or megatron");
    expect_refused("graphs --microbatches 4 --model mixtral-8x7b --cuda-graphs layer", "pad the experts to capacity");
    expect_refused("graphs --microbatches 4 --model llama3-8b --tp 3", "tp = 3 does not divide attention heads");
    expect_refused("graphs --microbatches 4 --layers-per-chunk 1 --tp 2", "only a model has any; add --model or drop --tp");
    expect_refused("graphs --microbatches 4 --model llama3-8b --capacity-factor 2", "--capacity-factor pads experts");
    expect_refused("graphs --microbatches 4 --model mixtral-8x7b --capacity-factor nan", "--capacity-factor = 'nan'");
    expect_refused("graphs --microbatches 4 --model mixtral-8x7b --capacity-factor 5", "up to experts/top_k = 4");
    expect_refused("graphs --microbatches 4 --model gpt3-175b --seq 4096", "--seq = 4096 is longer than the 2048 learned positions");
    expect_refused("graphs --microbatches 4 --model mixtral-8x7b --tp 8 --ep 16777216 --etp 16777216", "make more than 16,777,216 ranks");
    expect_refused("graphs --microbatches 33554432 --micro-batch 65536 --model mixtral-8x7b --ep 8", "use");
    expect_refused("graphs /does/not/exist.json", "is not there; check the path");
}

}  // namespace
}  // namespace mgplan::cli::testing::graphs_command_test
