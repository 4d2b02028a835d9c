// Reductions that start during the last backward and gathers that end during the next forward: same model, same traffic,
// at the right moments, and the same on shapes.

#include <algorithm>
#include <map>

#include <gtest/gtest.h>

#include "tests/model/training/small_training.hpp"

namespace mgplan::model::overlap_test {
namespace {

using small::Sizes;

constexpr int kSteps = 3;
constexpr std::int64_t kBucket = 3000;  // elements: some buckets to each chunk

TrainingTask overlapped(const ModelSpec& model, const Sizes& sizes, bool distributed = true) {
    TrainingTask task = small::task(model, sizes);
    task.training.overlap_grad_reduce = true;
    task.training.overlap_param_gather = true;
    task.training.distributed_optimizer = distributed;
    task.gradients.bucket_size = kBucket;
    return task;
}

struct Case {
    std::string name;
    bool tied = false;
    Sizes sizes;
    bool distributed = true;
};
void PrintTo(const Case& c, std::ostream* out) {
    *out << c.name;
}

class Overlap : public testing::TestWithParam<Case> {};

TEST_P(Overlap, TrainsTheSameModelWithTheTrafficPredicted) {
    const Case& c = GetParam();
    const ModelSpec model = c.tied ? small::gpt() : small::llama();
    TrainingTask plain = small::task(model, c.sizes);
    plain.training.distributed_optimizer = c.distributed;
    const TrainingTask task = overlapped(model, c.sizes, c.distributed);
    const small::Outcome expected = small::train(plain, kSteps), got = small::train(task, kSteps);
    ASSERT_EQ(got.steps.size(), expected.steps.size());
    EXPECT_LT(got.steps.back().loss, got.steps.front().loss);
    for (std::size_t i = 0; i < got.steps.size(); ++i) {
        EXPECT_NEAR(got.steps[i].loss / expected.steps[i].loss, 1, 1e-12) << "step " << i;
        EXPECT_NEAR(got.steps[i].result.grad_norm / expected.steps[i].result.grad_norm, 1, 1e-12) << "step " << i;
    }
    for (int rank = 0; rank < static_cast<int>(task.layout.sizes.world); ++rank) {
        const small::Prediction prediction = small::predict(task, rank, kSteps);
        const auto index = static_cast<std::size_t>(rank);
        EXPECT_EQ(prediction.high_water, got.memory[index].high_water) << "rank " << rank;
        EXPECT_EQ(prediction.traffic.totals(), got.traffic[index].totals()) << "rank " << rank;
    }
}

INSTANTIATE_TEST_SUITE_P(Layouts, Overlap,
                         testing::Values(Case{"dp2", false, {.dp = 2}}, Case{"dp4_all_reduce", true, {.dp = 4}, false},
                                         Case{"tied_tp2_sp_pp2_dp2", true, {.tp = 2, .pp = 2, .dp = 2, .sequence_parallel = true}},
                                         Case{"tied_one_stage_cp2_dp2", true, {.cp = 2, .dp = 2}},
                                         Case{"interleaved_dp2", false, {.pp = 2, .vpp = 2, .dp = 2}},
                                         Case{"interleaved_groups_of_4", false, {.pp = 2, .vpp = 2, .dp = 2, .group = 4}},
                                         Case{"tied_interleaved_tp2_dp2_all_reduce", true, {.tp = 2, .pp = 2, .vpp = 2, .dp = 2}, false}),
                         [](const auto& test) { return test.param.name; });

/// Ops and issued collectives of one rank, in order.
class EventLog final : public OpListener, public CollectiveListener {
public:
    void on_op(const OpRecord& record) override { events_.push_back(std::string(record.name)); }
    void on_collective(const CollectiveRecord& record) override {
        events_.push_back(std::string(to_string(record.kind)) + " in " + std::string(record.group) + " of " +
                          std::to_string(record.payload_bytes));
    }
    void note(std::string event) { events_.push_back(std::move(event)); }
    [[nodiscard]] const std::vector<std::string>& events() const { return events_; }
    void clear() { events_.clear(); }

    [[nodiscard]] std::vector<std::size_t> places_of(std::string_view beginning) const {
        std::vector<std::size_t> places;
        for (std::size_t i = 0; i < events_.size(); ++i) {
            if (events_[i].starts_with(beginning)) places.push_back(i);
        }
        return places;
    }

private:
    std::vector<std::string> events_;
};

std::vector<std::string> events_on_shapes(const TrainingTask& task, int rank, int steps) {
    MetaDevice device({.keep_allocations = false, .keep_ops = false});
    EventLog log;
    RankTrainer trainer(task, device, recording_world(rank, static_cast<int>(task.layout.sizes.world), &log));
    device.set_listener(&log);
    for (int step = 0; step < steps; ++step) (void)trainer.step(small::tokens_of, 1e-2);
    return log.events();
}

TEST(Overlap, ShapesGiveTheSameSequenceOfOpsAndCollectivesAsTheCpu) {
    const TrainingTask task = overlapped(small::gpt(), {.tp = 2, .pp = 2, .dp = 2, .sequence_parallel = true});
    runtime::InProcessWorld world(8);
    small::on_all_ranks(task, world, [&](int rank, RankTrainer& trainer, runtime::CpuDevice& device) {
        EventLog log;
        trainer.set_listener(&log);
        device.set_listener(&log);
        for (int step = 0; step < 2; ++step) (void)trainer.step(small::tokens_of, 1e-2);
        EXPECT_EQ(log.events(), events_on_shapes(task, rank, 2)) << "rank " << rank;
        trainer.set_listener(nullptr);
        device.set_listener(nullptr);
    });
}

TEST(Overlap, BucketsAreReducedDuringTheLastMicrobatchsBackward) {
    const TrainingTask task = overlapped(small::llama(), {.dp = 2});
    MetaDevice device({.keep_allocations = false, .keep_ops = false});
    EventLog log;
    RankTrainer trainer(task, device, recording_world(0, 2, &log));
    device.set_listener(&log);
    (void)trainer.step(small::tokens_of, 1e-2);
    const auto reductions = log.places_of("reduce_scatter in dp-cp");
    const auto loss_gradients = log.places_of("cross_entropy_backward");
    const auto last_backward_op = log.places_of("embedding_backward").back();
    ASSERT_GE(reductions.size(), 4U);
    ASSERT_EQ(loss_gradients.size(), static_cast<std::size_t>(task.layout.num_microbatches));
    // None while gradients still grow in later microbatches, the first while most of the backward is still to come, and
    // all but that of the embedding's bucket before the last backward op.
    EXPECT_GT(reductions.front(), loss_gradients.back());
    for (std::size_t k = 0; k + 1 < reductions.size(); ++k) EXPECT_LT(reductions[k], last_backward_op) << "bucket " << k;
    EXPECT_GT(reductions.back(), last_backward_op);
    const std::size_t backward_ops = last_backward_op - loss_gradients.back();
    EXPECT_LT(reductions.front() - loss_gradients.back(), backward_ops / 2);
}

TEST(Overlap, WithoutItEverythingIsReducedBehindTheLastBackwardInOneBucket) {
    const TrainingTask task = small::task(small::llama(), {.dp = 2});
    MetaDevice device({.keep_allocations = false, .keep_ops = false});
    EventLog log;
    RankTrainer trainer(task, device, recording_world(0, 2, &log));
    device.set_listener(&log);
    (void)trainer.step(small::tokens_of, 1e-2);
    const auto reductions = log.places_of("reduce_scatter in dp-cp");
    ASSERT_EQ(reductions.size(), 1U);
    EXPECT_GT(reductions.front(), log.places_of("embedding_backward").back());
}

/// On shapes, and tells when a gather is waited for.
class WaitLogger final : public Communicator {
public:
    WaitLogger(std::string group, int size, int rank, EventLog& log) : Communicator(std::move(group), size, rank), log_(log) {}
    void abort(const std::string& /*reason*/) noexcept override {}

private:
    class Noted final : public Pending {
    public:
        Noted(EventLog* log, std::string event) : log_(log), event_(std::move(event)) {}
        void wait() override {
            if (log_ != nullptr) log_->note(event_);
        }

    private:
        EventLog* log_;
        std::string event_;
    };
    std::unique_ptr<Pending> silent() { return std::make_unique<Noted>(nullptr, ""); }

    std::unique_ptr<Pending> do_all_reduce(const Tensor&, Reduction) override { return silent(); }
    std::unique_ptr<Pending> do_all_gather(const Tensor&, const Tensor& whole) override {
        return std::make_unique<Noted>(&log_, "wait for gather of " + std::to_string(whole.bytes()));
    }
    std::unique_ptr<Pending> do_reduce_scatter(const Tensor&, const Tensor&, Reduction) override { return silent(); }
    std::unique_ptr<Pending> do_all_gather_rows(const Tensor&, const Tensor&, std::span<const std::int64_t>) override { return silent(); }
    std::unique_ptr<Pending> do_reduce_scatter_rows(const Tensor&, const Tensor&, std::span<const std::int64_t>, Reduction) override {
        return silent();
    }
    std::unique_ptr<Pending> do_all_to_all(const Tensor&, const Tensor&, std::span<const std::int64_t>,
                                           std::span<const std::int64_t>) override {
        return silent();
    }
    std::unique_ptr<Pending> do_broadcast(const Tensor&, int) override { return silent(); }
    std::unique_ptr<Pending> do_send(const Tensor&, int) override { return silent(); }
    std::unique_ptr<Pending> do_receive(const Tensor&, int) override { return silent(); }
    void do_barrier() override {}

    EventLog& log_;
};

TEST(Overlap, GathersAreIssuedAtTheStepsEndAndWaitedForWhereTheirParametersAreFirstUsed) {
    const TrainingTask task = overlapped(small::llama(), {.dp = 2});
    MetaDevice device({.keep_allocations = false, .keep_ops = false});
    EventLog log;
    World world{0, 2, [&](const std::string& group, std::span<const std::int32_t> ranks) -> std::unique_ptr<Communicator> {
                    auto made = std::make_unique<WaitLogger>(group, static_cast<int>(ranks.size()), place_in_group(ranks, 0, 2), log);
                    made->set_listener(&log);
                    return made;
                }};
    RankTrainer trainer(task, device, world);
    device.set_listener(&log);
    (void)trainer.step(small::tokens_of, 1e-2);
    const auto issued = log.places_of("all_gather in dp-cp");
    ASSERT_GE(issued.size(), 4U);
    EXPECT_GT(issued.front(), log.places_of("adam_step").back());
    EXPECT_TRUE(log.places_of("wait for gather").empty());

    log.clear();
    (void)trainer.step(small::tokens_of, 1e-2);
    const auto waits = log.places_of("wait for gather");
    ASSERT_EQ(waits.size(), issued.size());
    // The embedding's bucket is waited for before the first lookup, the head's behind the last layer of the first
    // microbatch's forward, and in between the layers run.
    EXPECT_LT(waits.front(), log.places_of("embedding").front());
    EXPECT_GT(waits[1], log.places_of("embedding").front());
    EXPECT_LT(waits.back(), log.places_of("row_maximum").front());
    EXPECT_GT(waits.back(), log.places_of("attention").front());
    EXPECT_GT(waits.back() - waits.front(), 20U);
}

TEST(Overlap, ParametersReadBetweenStepsAreTheGatheredOnes) {
    const TrainingTask task = overlapped(small::llama(), {.dp = 2});
    runtime::InProcessWorld world(2);
    std::map<int, std::vector<std::byte>> bytes;
    std::mutex mutex;
    small::on_all_ranks(task, world, [&](int rank, RankTrainer& trainer, runtime::CpuDevice&) {
        (void)trainer.step(small::tokens_of, 1e-2);
        const auto mine = small::parameter_bytes(trainer);
        const std::scoped_lock lock(mutex);
        bytes[rank] = mine;
    });
    EXPECT_EQ(bytes.at(0), bytes.at(1));
}

}  // namespace
}  // namespace mgplan::model::overlap_test
