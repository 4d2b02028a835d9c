// Replays Megatron-LM's counts of CUDA graphs and static inputs (README.md here) through the library.

#include <fstream>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "plan/graphs/graph_slots.hpp"
#include "tests/support/data_folder.hpp"

namespace mgplan::graphs_golden_test {
namespace {

using Json = nlohmann::json;

TEST(Golden, GraphCountsAreThoseOfMegatron) {
    std::ifstream file(tests::data_folder() + "/golden/data/cuda_graph.dev.json");
    const Json data = Json::parse(file);
    int agreed = 0;
    int skipped = 0;
    for (const Json& test : data.at("cases")) {
        SCOPED_TRACE(test.at("id").get<std::string>());
        ScheduleRequest request;
        request.pp = test.at("pp");
        request.vpp = test.at("vpp").is_null() ? 1 : test.at("vpp").get<int>();
        request.microbatches = test.at("num_microbatches");
        if (request.vpp > 1 && !test.at("group").is_null()) request.group_size = test.at("group").get<std::int64_t>();
        const bool legal =
            request.vpp == 1 || !interleaved_refusal(request.pp, request.microbatches, request.group_size.value_or(request.pp));
        if (test.at("overlap_moe_ep").get<bool>() || !legal) {
            ++skipped;
            continue;
        }
        std::vector<GraphedChunk> chunks;
        for (const Json& chunk : test.at("layer_signatures")) {
            GraphedChunk layers;
            for (const Json& shape : chunk) layers.push_back({shape, 1});
            chunks.push_back(layers);
        }
        const Schedule schedule(request);
        for (const Json& want : test.at("ranks")) {
            const GraphCounts got = count_graphs(schedule, want.at("rank"), chunks, GraphPolicy::megatron);
            EXPECT_EQ(got.forward_graphs, want.at("num_fwd_graphs").get<std::int64_t>());
            EXPECT_EQ(got.backward_graphs, want.at("num_bwd_graphs").get<std::int64_t>());
            EXPECT_EQ(got.static_buffers, want.at("distinct_static_buffers").get<std::int64_t>());
            EXPECT_EQ(got.peak_live_chunks, want.at("peak_live_chunks").get<std::int64_t>());
        }
        ++agreed;
    }
    EXPECT_EQ(agreed, 47);
    EXPECT_EQ(skipped, 23);
}

}  // namespace
}  // namespace mgplan::graphs_golden_test
