// No schedule deadlocks: the sends and receives of all ranks, in the order and with the waiting of the executor, are
// walked over a transport that holds no message of its own (the strictest: a send ends when its receive is posted).

#include <deque>
#include <fstream>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "model/communicator/recording_communicator.hpp"
#include "model/meta/meta_device.hpp"
#include "model/pipeline/send_depth.hpp"
#include "model/training/rank_trainer.hpp"
#include "plan/schedule/schedule.hpp"
#include "tests/support/data_folder.hpp"

namespace mgplan::model::deadlock_test {
namespace {

using Json = nlohmann::json;

/// One call of a rank. What travels is the output of a virtual stage for a microbatch, or the gradient of its input.
struct Call {
    bool send = false;
    bool forward = true;
    int peer = 0;
    int stage = 0;  ///< that made the message
    int microbatch = 0;
    int lane = 0;  ///< messages of other lanes do not wait for this one: in a V the chunk, else 0
    bool operator==(const Call&) const = default;
};
using Calls = std::vector<Call>;

/// The calls of one rank for its order list: a forward first receives unless it begins the model, then sends unless it
/// ends it; a backward the other way round. Each chunk takes its microbatches in order.
Calls calls_of(const std::vector<int>& order, int pp, int chunks, int rank) {
    Calls calls;
    std::vector<int> forwards(static_cast<std::size_t>(chunks)), backwards(forwards);
    const int last = pp * chunks - 1, next = (rank + 1) % pp, previous = (rank + pp - 1) % pp;
    for (const int op : order) {
        const bool forward = op > 0;
        const int chunk = std::abs(op) - 1, stage = chunk * pp + rank;
        const int microbatch = (forward ? forwards : backwards)[static_cast<std::size_t>(chunk)]++;
        if (forward && stage > 0) calls.push_back({false, true, previous, stage - 1, microbatch});
        if (forward && stage < last) calls.push_back({true, true, next, stage, microbatch});
        if (!forward && stage < last) calls.push_back({false, false, next, stage + 1, microbatch});
        if (!forward && stage > 0) calls.push_back({true, false, previous, stage, microbatch});
    }
    return calls;
}

/// The calls of one rank under a schedule with divided backwards: neighbours in a V are other ranks, or the rank itself.
Calls calls_of(const PipelineOrder& order, int rank) {
    Calls calls;
    for (const PipelineOp& op : order.ranks[static_cast<std::size_t>(rank)]) {
        if (op.pass == Pass::weight_gradient) continue;
        const bool forward = op.pass == Pass::forward;
        const int stage = order.stage_of(rank, op.chunk), step = forward ? 1 : -1, lane = order.v_shaped ? op.chunk : 0;
        const auto add = [&](bool send, int other) {
            if (other < 0 || other >= order.stages() || order.rank_of(other) == rank) return;
            calls.push_back({send, forward, order.rank_of(other), send ? stage : other, op.microbatch, lane});
        };
        add(false, stage - step);
        add(true, stage + step);
    }
    return calls;
}

/// Messages from one rank on one channel, first in, first out.
struct Channel {
    std::deque<Call> open;
};

/// Runs all ranks as far as they come. Nothing: all finish. Else where each stuck rank stands, or which message was taken
/// for another.
std::optional<std::string> walk(const std::vector<Calls>& ranks, const std::vector<SendDepth>& depths) {
    const auto count = ranks.size();
    std::vector<std::size_t> at(count);
    // By rank: forward messages to the next one, backward messages to the one before.
    std::vector<Channel> forward(2 * count), backward(2 * count);
    const auto place = [](std::size_t rank, int lane) { return 2 * rank + static_cast<std::size_t>(lane); };
    for (bool moved = true; moved;) {
        moved = false;
        for (std::size_t rank = 0; rank < count; ++rank) {
            for (; at[rank] < ranks[rank].size(); ++at[rank], moved = true) {
                const Call& call = ranks[rank][at[rank]];
                if (call.send) {
                    auto& open = (call.forward ? forward : backward)[place(rank, call.lane)].open;
                    const std::int64_t depth = call.forward ? depths[rank].forward : depths[rank].backward;
                    if (std::ssize(open) == depth) break;
                    open.push_back(call);
                    continue;
                }
                auto& open = (call.forward ? forward : backward)[place(static_cast<std::size_t>(call.peer), call.lane)].open;
                if (open.empty()) break;
                if (open.front().stage != call.stage || open.front().microbatch != call.microbatch)
                    return "rank " + std::to_string(rank) + " takes a message for another one";
                open.pop_front();
            }
        }
    }
    std::string stuck;
    for (std::size_t rank = 0; rank < count; ++rank) {
        if (at[rank] == ranks[rank].size()) continue;
        const Call& call = ranks[rank][at[rank]];
        stuck += "rank " + std::to_string(rank) + " is stuck in a " + (call.send ? "send" : "receive") + " of microbatch " +
                 std::to_string(call.microbatch) + "; ";
    }
    for (std::size_t channel = 0; channel < 2 * count; ++channel) {
        if (stuck.empty() && !(forward[channel].open.empty() && backward[channel].open.empty()))
            stuck = "a message of rank " + std::to_string(channel / 2) + " is never received";
    }
    return stuck.empty() ? std::nullopt : std::optional(stuck);
}

std::vector<SendDepth> depths_of(int pp, int vpp, std::int64_t group) {
    std::vector<SendDepth> depths;
    for (int rank = 0; rank < pp; ++rank) depths.push_back(send_depth(pp, vpp, group, rank));
    return depths;
}

std::vector<Calls> calls_of_all(const ScheduleRequest& request) {
    const Schedule schedule(request);
    std::vector<Calls> calls;
    for (int rank = 0; rank < request.pp; ++rank) {
        const RankSchedule own = schedule.rank(rank);
        std::vector<int> order;
        for (const PipelineOp& op : own.ops) order.push_back(signed_chunk(op));
        calls.push_back(calls_of(order, request.pp, request.vpp, rank));
    }
    return calls;
}

TEST(PipelineDeadlock, EveryGoldenScheduleFinishes) {
    std::ifstream file(tests::data_folder() + "/golden/data/schedules.dev.json");
    const Json data = Json::parse(file);
    int walked = 0, refused = 0;
    for (const Json& test : data.at("cases")) {
        const std::string kind = test.at("kind");
        if (kind == "schedule_table" || kind == "select_schedule" || test.contains("expect_error")) continue;
        SCOPED_TRACE(test.at("id").get<std::string>());
        const auto number = [&](const char* key, int otherwise) {
            return test.contains(key) && !test.at(key).is_null() ? test.at(key).get<int>() : otherwise;
        };
        const int pp = number("pp", 1), vpp = number("vpp", 1), group = number("group", pp);
        if (!test.at("ranks")[0].contains("order")) continue;  // forward only: counts alone
        // The planning helpers plan what the schedules themselves refuse.
        if (vpp > 1 && (pp == 1 || interleaved_refusal(pp, number("num_microbatches", 1), group))) {
            ++refused;
            continue;
        }
        std::vector<Calls> calls;
        for (std::size_t rank = 0; rank < test.at("ranks").size(); ++rank)
            calls.push_back(calls_of(test.at("ranks")[rank].at("order").get<std::vector<int>>(), pp, vpp, static_cast<int>(rank)));
        ASSERT_EQ(static_cast<int>(calls.size()), pp);
        EXPECT_EQ(walk(calls, depths_of(pp, vpp, group)), std::nullopt);
        ++walked;
    }
    EXPECT_GT(walked, 120) << refused << " refused";
}

TEST(PipelineDeadlock, RandomLegalSchedulesFinish) {
    std::mt19937 random(7);
    const auto draw = [&](int low, int high) { return std::uniform_int_distribution<int>(low, high)(random); };
    int walked = 0, wide = 0;
    while (walked < 1500) {
        ScheduleRequest request;
        request.pp = draw(2, 9);
        request.vpp = draw(1, 4);
        request.microbatches = draw(1, 40);
        std::int64_t group = request.pp;
        if (request.vpp > 1) {
            group = draw(request.pp, 40);
            if (interleaved_refusal(request.pp, request.microbatches, group)) continue;
            request.group_size = group;
        }
        ASSERT_EQ(walk(calls_of_all(request), depths_of(request.pp, request.vpp, group)), std::nullopt)
            << "pp " << request.pp << " vpp " << request.vpp << " microbatches " << request.microbatches << " group " << group;
        ++walked;
        if (group > request.pp) ++wide;
    }
    EXPECT_GT(wide, 500);
}

constexpr std::array kSplitSchedules{SplitSchedule::zb_h1,  SplitSchedule::zb_h2, SplitSchedule::zb_v,
                                     SplitSchedule::v_half, SplitSchedule::v_min, SplitSchedule::dualpipe_v};

TEST(PipelineDeadlock, SplitSchedulesFinishWithTheFewestOpenSends) {
    for (const SplitSchedule kind : kSplitSchedules) {
        for (const int pp : {2, 3, 4, 7}) {
            for (const std::int64_t microbatches : {1, 2, 5, 8, 14, 31}) {
                if (kind == SplitSchedule::dualpipe_v && microbatches < 2 * pp) continue;
                SCOPED_TRACE(std::string(to_string(kind)) + " pp " + std::to_string(pp) + " m " + std::to_string(microbatches));
                const PipelineOrder order = split_order({kind, pp, microbatches});
                std::vector<Calls> calls;
                for (int rank = 0; rank < pp; ++rank) calls.push_back(calls_of(order, rank));
                const std::int64_t least = least_send_depth(order);
                EXPECT_EQ(walk(calls, std::vector(static_cast<std::size_t>(pp), SendDepth{least, least})), std::nullopt);
                EXPECT_EQ(least, 1);
            }
        }
    }
}

TEST(PipelineDeadlock, AListThatRunsAheadNeedsDeeperSends) {
    // Rank 0 sends three microbatches down the V before it makes the gradient that rank 1 wants before it takes the second.
    PipelineOrder order;
    order.pp = order.chunks = 2;
    order.microbatches = 3;
    order.v_shaped = true;
    const auto list = [](const std::string& text) {
        std::vector<PipelineOp> ops;
        for (std::size_t i = 0; i < text.size(); i += 4)
            ops.push_back(
                {text[i] == 'F' ? Pass::forward : Pass::backward, static_cast<std::int16_t>(text[i + 1] - 'a'), text[i + 2] - '0'});
        return ops;
    };
    order.ranks = {list("Fa0 Fa1 Fa2 Fb0 Bb0 Fb1 Bb1 Fb2 Bb2 Ba0 Ba1 Ba2"), list("Fa0 Fb0 Bb0 Ba0 Fa1 Fb1 Bb1 Ba1 Fa2 Fb2 Bb2 Ba2")};
    EXPECT_EQ(least_send_depth(order), 2);
    const std::vector<Calls> calls{calls_of(order, 0), calls_of(order, 1)};
    EXPECT_TRUE(walk(calls, {{1, 1}, {1, 1}}));
    EXPECT_EQ(walk(calls, {{2, 2}, {2, 2}}), std::nullopt);
}

TEST(PipelineDeadlock, AGroupLargerThanThePipelineNeedsTheDeeperSends) {
    ScheduleRequest request;
    request.pp = 2;
    request.vpp = 2;
    request.microbatches = 8;
    request.group_size = 8;
    const auto calls = calls_of_all(request);
    EXPECT_EQ(walk(calls, depths_of(2, 2, 8)), std::nullopt);
    const auto stuck = walk(calls, {SendDepth{}, SendDepth{}});
    ASSERT_TRUE(stuck);
    EXPECT_NE(stuck->find("rank 1 is stuck in a send"), std::string::npos) << *stuck;
}

TEST(PipelineDeadlock, AnAlteredScheduleIsFoundToDeadlock) {
    // Rank 0 wants the gradient of microbatch 0 before it sends what microbatch 1 needs; rank 1 computes both forwards first.
    const std::vector<Calls> calls{calls_of({1, -1, 1, -1}, 2, 1, 0), calls_of({1, 1, -1, -1}, 2, 1, 1)};
    const auto stuck = walk(calls, depths_of(2, 1, 2));
    ASSERT_TRUE(stuck);
    EXPECT_EQ(*stuck, "rank 0 is stuck in a receive of microbatch 0; rank 1 is stuck in a receive of microbatch 1; ");
    // The real one, for comparison.
    const std::vector<Calls> right{calls_of({1, 1, -1, -1}, 2, 1, 0), calls_of({1, -1, 1, -1}, 2, 1, 1)};
    EXPECT_EQ(walk(right, depths_of(2, 1, 2)), std::nullopt);
}

TEST(PipelineDeadlock, AMessageTakenForAnotherIsFound) {
    // Rank 1 takes up chunk 1 before chunk 0, and rank 0 sends in the other order.
    const std::vector<Calls> calls{calls_of({1, 2}, 2, 2, 0), calls_of({2, 1}, 2, 2, 1)};
    EXPECT_TRUE(walk(calls, {{4, 4}, {4, 4}}));
}

/// Sends and receives between stages, as a rank issues them.
class CallLog final : public CollectiveListener {
public:
    void on_collective(const CollectiveRecord& record) override {
        if (record.kind != CollectiveKind::send && record.kind != CollectiveKind::receive) return;
        ASSERT_TRUE(record.group == "pp" || record.group == "pp-backward");
        calls.push_back({record.kind == CollectiveKind::send, record.group == "pp", static_cast<int>(record.peer), 0, 0});
    }
    Calls calls;
};

TrainingTask small_task(int pp, int vpp, std::int64_t group, std::int64_t microbatches) {
    TrainingTask task;
    task.model.layers = static_cast<std::int64_t>(pp) * vpp;
    task.model.hidden = task.model.ffn = 8;
    task.model.heads = task.model.kv_heads = 1;
    task.model.head_dim = 8;
    task.model.vocab = 16;
    task.model.vocab_divisor = 8;
    task.batch = {microbatches, 4};
    task.training.precision = Precision::fp32;
    Layout& layout = task.layout;
    layout.sizes = {pp, 1, 1, 1, 1, pp, AxisOrder{}, 1};
    layout.vpp = vpp;
    layout.group_size = group;
    layout.num_microbatches = microbatches;
    layout.split = std::make_shared<const StageSplit>(automatic_stage_split(task.model.layers, 0, pp, vpp).value());
    return task;
}

/// Runs a step of every rank on shapes and compares what it issues.
void expect_calls(const TrainingTask& task, const std::vector<Calls>& wanted) {
    const int pp = static_cast<int>(task.layout.sizes.pp);
    for (int rank = 0; rank < pp; ++rank) {
        MetaDevice device({.keep_allocations = false, .keep_ops = false});
        CallLog log;
        RankTrainer trainer(task, device, recording_world(rank, pp, &log));
        (void)trainer.step([](std::int64_t, std::span<std::int32_t>) {}, 1e-3);
        Calls plain = wanted[static_cast<std::size_t>(rank)];
        for (Call& call : plain) call.stage = call.microbatch = call.lane = 0;
        EXPECT_EQ(log.calls, plain) << "pp " << pp << " vpp " << task.layout.vpp << " rank " << rank;
    }
}

TEST(PipelineDeadlock, TheExecutorIssuesTheCallsThatWereWalked) {
    for (const auto& [pp, vpp, group, microbatches] :
         {std::array{1, 1, 1, 3}, std::array{3, 1, 3, 5}, std::array{2, 2, 2, 4}, std::array{2, 3, 4, 8}, std::array{4, 2, 5, 10}}) {
        ScheduleRequest request;
        request.pp = pp;
        request.vpp = vpp;
        request.microbatches = microbatches;
        if (vpp > 1) request.group_size = group;
        expect_calls(small_task(pp, vpp, group, microbatches), calls_of_all(request));
    }
    for (const SplitSchedule kind : kSplitSchedules) {
        const int pp = 3, chunks = chunks_of(kind);
        TrainingTask task = small_task(pp, chunks, pp, 7);
        task.layout.schedule = kind;
        task.layout.split =
            std::make_shared<const StageSplit>(automatic_stage_split(task.model.layers, 0, pp, chunks, chunks == 2).value());
        const PipelineOrder order = split_order({kind, pp, 7});
        std::vector<Calls> calls;
        for (int rank = 0; rank < pp; ++rank) calls.push_back(calls_of(order, rank));
        expect_calls(task, calls);
    }
}

}  // namespace
}  // namespace mgplan::model::deadlock_test
