// The command graphs: formats and bad input. Its counts are held by tests/golden and tests/plan.

#include "say.hpp"

namespace mgplan::cli::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::StartsWith;

TEST(GraphsCommand, PrintsJsonAsDocumented) {
    const Said said = say("graphs --pp 2 --microbatches 4 --layers-per-chunk 3 --format json");
    EXPECT_EQ(said.code, kDone) << said.err;
    EXPECT_EQ(said.out,
              R"({"policy":"slots","cuda_graphs":["layer"],"ranks":[{"rank":0,"forward_graphs":6,"backward_graphs":6,"static_buffers":6,)"
              R"("slots":2,"peak_live_chunks":2,"static_input_bytes":null,"boundary":[],"boundary_bytes":null},)"
              R"({"rank":1,"forward_graphs":3,"backward_graphs":3,"static_buffers":3,"slots":1,"peak_live_chunks":1,)"
              R"("static_input_bytes":null,"boundary":[],"boundary_bytes":null}]})"
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
    EXPECT_THAT(said.out, HasSubstr("\n0,32,32,32,4,4\n"));
    EXPECT_THAT(said.err, HasSubstr("a later version adds the bytes"));
    // The first three layers of DeepSeek-V3 have no router, the 58 others and its MTP layer do.
    EXPECT_THAT(say("graphs --microbatches 8 --model deepseek-v3 --cuda-graphs moe_router --format csv").out,
                HasSubstr("\n0,59,59,59,1,1\n"));
    EXPECT_THAT(say("graphs --microbatches 8 --model deepseek-v3 --cuda-graphs mlp --format csv").out, HasSubstr("\n0,3,3,3,1,1\n"));
    EXPECT_THAT(say("graphs --microbatches 8 --pp 3 --layers-per-chunk 2 --cuda-graphs full_iteration --format csv").out,
                HasSubstr("\n0,1,0,8,3,3\n1,1,0,0,2,2\n2,1,0,8,1,1\n"));
    EXPECT_THAT(say("graphs --microbatches 8 --layers-per-chunk 2 --cuda-graphs none --format csv").out, HasSubstr("\n0,0,0,0,1,1\n"));
    EXPECT_THAT(say("graphs --microbatches 8 --layers-per-chunk 2 --cuda-graphs attn,moe_router --format json").out,
                HasSubstr(R"("boundary":[{"name":"hidden_states","bytes":null},{"name":"probabilities","bytes":null},)"));
}

TEST(GraphsCommand, TakesAPlan) {
    const TempFile file("graphs_plan.json");
    const std::string& path = file.path();
    ASSERT_EQ(
        say("plan --world 8 --model llama3-8b --tp 1 --pp 4 --vpp 2 --micro-batch 1 --global-batch 32 --max-memory 10TB --save-plan " +
            path)
            .code,
        kDone);
    const Said said = say("graphs " + path + " --format csv");
    EXPECT_EQ(said.code, kDone) << said.err;
    EXPECT_EQ(said.out, say("graphs --pp 4 --vpp 2 --microbatches 16 --model llama3-8b --format csv").out);
    expect_refused("graphs " + path + " --pp 2", "a PLAN holds what --pp says");
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
    expect_refused("graphs /does/not/exist.json", "is not there; check the path");
}

}  // namespace
}  // namespace mgplan::cli::testing
