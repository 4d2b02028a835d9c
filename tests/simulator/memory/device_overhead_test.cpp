#include "simulator/memory/device_overhead.hpp"

#include <algorithm>
#include <set>
#include <vector>

#include <gtest/gtest.h>

#include "plan/json/cluster_json.hpp"
#include "planner/constraints.hpp"
#include "simulator/cost_model.hpp"
#include "tests/simulator/round_numbers.hpp"

namespace mgplan::simulator::device_overhead_test {
namespace {

constexpr std::int64_t kMiB = std::int64_t{1} << 20;

GroupPath group(std::int64_t ranks, std::int64_t inside) {
    GroupPath path;
    path.ranks = ranks;
    path.ranks_per_domain = inside;
    return path;
}

// NVIDIA/nccl issue 964: all-reduces of 4 MB in groups of 4 A100 take 544 MiB for two ranks and 688 MiB for more, seen on
// rank 0, which ends the tree and has half the further connections of ranks in its middle.
TEST(Communicator, OfA100sTakesWhatWasReported) {
    const ClusterSpec cluster = load_cluster("dgx-a100-80g");
    EXPECT_EQ(communicator_bytes(group(2, 2), {.small_reduces = true}, cluster), 544 * kMiB);
    const std::int64_t middle = communicator_bytes(group(4, 4), {.small_reduces = true}, cluster);
    EXPECT_EQ(544 * kMiB + (middle - 544 * kMiB) / 2, 688 * kMiB);
}

// NVIDIA/nccl issue 1685: an all-to-all of 8 H100 connects each pair on 32 channels by buffers of 10 and 2 MiB; 3.28 GB more
// are in use behind it, some of which are kernels.
TEST(Communicator, ForExchangesConnectsEveryPairOfTheDomain) {
    const ClusterSpec cluster = load_cluster("dgx-h100");
    const std::int64_t bytes = communicator_bytes(group(8, 8), {.exchanges = true}, cluster);
    EXPECT_EQ(bytes, 7 * 32 * 12 * kMiB + 256 * kMiB);
    EXPECT_NEAR(static_cast<double>(bytes), 3.28e9, 0.08 * 3.28e9);
}

// NVIDIA/nccl issue 2363: a communicator of NCCL 2.28.9 on B300 begins with a buffer of 536,870,912 bytes.
TEST(Communicator, OfBlackwellsBeginsWithHalfAGiB) {
    EXPECT_EQ(communicator_bytes(group(8, 8), {}, load_cluster("dgx-b300")), 536'870'912);
}

TEST(Communicator, OfOneRankIsNone) {
    EXPECT_EQ(communicator_bytes(group(1, 1), {.large_reduces = true, .exchanges = true}, load_cluster("dgx-h100")), 0);
}

TEST(Communicator, AcrossNodesHoldsNetworkBuffers) {
    const ClusterSpec cluster = load_cluster("dgx-h100");
    // One rank and card a node: two channels, doubled on Hopper; LL128 and SIMPLE on either side; 4 · 16 chunks of 128 KiB.
    EXPECT_EQ(communicator_bytes(group(2, 1), {.gathers = true}, cluster), 4 * 2 * (4'915'200 + 4 * kMiB) + 8 * kMiB);
    // Beyond two nodes a tree has three neighbours.
    EXPECT_EQ(communicator_bytes(group(8, 1), {.small_reduces = true}, cluster), 4 * 3 * 2 * (4'915'200 + 4 * kMiB) + 8 * kMiB);
    // All of two nodes: 16 channels, and sends on two to each peer inside.
    EXPECT_EQ(communicator_bytes(group(16, 8), {.exchanges = true}, cluster), 7 * 2 * 12 * kMiB + 64 * kMiB);
}

// graph/paths.cc: pairs of a group across the network have two channels, one where its ranks are more than twice its channels.
TEST(Communicator, OfManyRanksAcrossNodesHasOneChannelForEachPeer) {
    const ClusterSpec cluster = load_cluster("dgx-h100");
    EXPECT_EQ(communicator_bytes(group(32, 8), {.exchanges = true}, cluster), 7 * 2 * 12 * kMiB + 64 * kMiB);
    EXPECT_EQ(communicator_bytes(group(64, 8), {.exchanges = true}, cluster), 7 * 1 * 12 * kMiB + 64 * kMiB);
    // Inside a domain that spans nodes there is no such limit; over two racks of 64 channels there are just as many ranks as two allow.
    const ClusterSpec rack = load_cluster("gb200-nvl72");
    EXPECT_EQ(communicator_bytes(group(64, 64), {.exchanges = true}, rack), (63 * 64 * 12 + 512) * kMiB);
    EXPECT_EQ(communicator_bytes(group(128, 64), {.exchanges = true}, rack), 63 * 2 * 12 * kMiB + 256 * kMiB);
    EXPECT_EQ(communicator_bytes(group(192, 64), {.exchanges = true}, rack), 63 * 1 * 12 * kMiB + 256 * kMiB);
}

TEST(Communicator, ReducesInTheSwitchWithBuffersForEveryMember) {
    const ClusterSpec h100 = load_cluster("dgx-h100");
    EXPECT_EQ(
        communicator_bytes(group(8, 8), {.large_reduces = true}, h100) - communicator_bytes(group(8, 8), {.small_reduces = true}, h100),
        16 * 2 * 8 * kMiB);
    const ClusterSpec a100 = load_cluster("dgx-a100-80g");
    EXPECT_EQ(communicator_bytes(group(8, 8), {.large_reduces = true}, a100),
              communicator_bytes(group(8, 8), {.small_reduces = true}, a100));
}

Workload tied_mixture() {
    Workload work;
    work.model = mixture(8);
    work.model.tied_embeddings = true;
    work.cluster = load_cluster("dgx-h100");
    work.world = 32;
    work.batch = {32, 512};
    work.memory_limit = work.cluster.memory_bytes;
    return work;
}

std::vector<std::string_view> names(const ContextTerms& terms) {
    std::vector<std::string_view> list;
    for (const CommunicatorTerm& term : terms.nccl) list.push_back(term.group);
    return list;
}

TEST(DeviceOverhead, NamesTheGroupsThatTheEngineUses) {
    const Workload work = tied_mixture();
    LayoutRequest request;
    request.tp = 2;
    request.sequence_parallel = true;
    request.pp = 4;
    request.ep = 4;
    request.etp = 1;
    const Calibration calibration = default_calibration(work.cluster);
    DeviceOverhead overhead(work, calibration);
    Layout layout = planner::make_layout(request, work);
    EXPECT_EQ(names(overhead.terms(layout, 1)), (std::vector<std::string_view>{"world", "tp", "dp-cp", "pp", "pp-backward", "tp-pp", "ep",
                                                                               "expert-dp", "tp-cp", "expert-tp-ep-pp"}));
    layout.engine = Engine::megatron;
    EXPECT_EQ(names(overhead.terms(layout, 0)),
              (std::vector<std::string_view>{"world", "tp", "dp-cp", "pp", "intra-optimizer", "embedding", "ep", "expert-dp", "tp-cp"}));
    for (const int stage : {0, 1, 2, 3}) EXPECT_EQ(overhead.bytes(layout, stage), overhead.terms(layout, stage).total()) << stage;
}

TEST(DeviceOverhead, SumsTheGroupsOfEachLayoutForItself) {
    Workload work = tied_mixture();
    work.model.moe->dispatcher = TokenDispatcher::hybrid_ep;
    const Calibration calibration = default_calibration(work.cluster);
    DeviceOverhead overhead(work, calibration);
    const auto layout_of = [&](auto change) {
        LayoutRequest request;
        request.tp = request.cp = 2;
        request.ep = 4;
        request.etp = 1;
        request.pp = 2;
        request.sequence_parallel = true;
        request.engine = Engine::megatron;
        change(request);
        return planner::make_layout(request, work);
    };
    std::vector<Layout> layouts{
        layout_of([](LayoutRequest&) {}),
        layout_of([](LayoutRequest& r) { r.micro_batch = 2; }),
        layout_of([](LayoutRequest& r) { r.cp_comm_type = CpCommType::all_gather; }),
        layout_of([](LayoutRequest& r) { r.engine = Engine::mgplan; }),
        layout_of([](LayoutRequest& r) { r.order = AxisOrder::parse("dp-tp-cp-ep-pp"); }),
        layout_of([](LayoutRequest& r) { r.ep = 8; }),
    };
    layouts.push_back(layouts.front());
    layouts.back().sequence_parallel = false;
    std::set<std::int64_t> sums;
    for (const Layout& layout : layouts) {
        const std::int64_t sum = overhead.sums(layout).end;
        EXPECT_EQ(sum, overhead.terms(layout, 0).total());
        sums.insert(sum);
    }
    EXPECT_GE(sums.size(), layouts.size() - 1) << "nearly each takes what no other takes: " << testing::PrintToString(sums);
}

TEST(DeviceOverhead, CountsGroupsOfEachPowerOfTwoOfRanksThatDocumentsRunOver) {
    Workload work = tied_mixture();
    work.model.moe.reset();
    work.model.moe_layers.clear();
    work.model.ffn = 1024;
    work.training.megatron.document_tokens = 512;
    const Calibration calibration = default_calibration(work.cluster);
    LayoutRequest request;
    request.engine = Engine::megatron;
    request.tp = 2;
    request.cp = 2;
    const Layout layout = planner::make_layout(request, work);
    const ContextTerms terms = DeviceOverhead(work, calibration).terms(layout, 0);
    // Groups of 2, 4 and 8 of the 16 ranks of dp·cp (parallel_state.py, create_hybrid_dp_cp_groups); tp 2 lies between their members, so
    // that four share a node of eight.
    std::int64_t expected = 0;
    for (const auto& [ranks, in_domain] : {std::pair{2, 2}, {4, 4}, {8, 4}}) {
        const std::vector<GridAxis> members{{Axis::cp, ranks, 2}};
        const GroupPath path = group_path(members, work.cluster, calibration, 32);
        EXPECT_EQ(path.ranks_per_domain, in_domain);
        expected += communicator_bytes(path, {.streams = 1}, work.cluster);
    }
    const auto found =
        std::find_if(terms.nccl.begin(), terms.nccl.end(), [](const CommunicatorTerm& t) { return t.group == "hybrid-dp-cp"; });
    ASSERT_NE(found, terms.nccl.end());
    EXPECT_EQ(found->bytes, expected);
    work.training.megatron.document_tokens = 0;
    EXPECT_EQ(terms.total() - DeviceOverhead(work, calibration).terms(layout, 0).total(), expected);
}

TEST(DeviceOverhead, IsTheContextOfThePrediction) {
    const Workload work = tied_mixture();
    CostModel model(work);
    const RankMemory memory = model.estimate(planner::make_layout({}, work)).memory.worst;
    EXPECT_EQ(memory.context_terms.total(), memory.breakdown.context);
    EXPECT_GT(memory.context_terms.driver, 0);
}

}  // namespace
}  // namespace mgplan::simulator::device_overhead_test
