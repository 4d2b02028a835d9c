// Closed forms from the literature as checks on what a rank really issues and allocates on shapes.

#include <algorithm>
#include <array>
#include <map>

#include <gtest/gtest.h>

#include "plan/schedule/schedule.hpp"
#include "tests/model/training/small_training.hpp"

namespace mgplan::model::closed_forms_test {
namespace {

constexpr std::int64_t kBatch = 2, kSequence = 16, kTensorRanks = 4;

/// Everything that one microbatch's passes through a one-stage model of two layers do, by unit of the model.
class TracedChunk final : public WeightEvents, private CollectiveListener, private OpListener {
public:
    struct Unit {
        std::vector<CollectiveRecord> forward, backward;
        double matmul_flops = 0;  ///< of both
    };

    TracedChunk(const ModelSpec& model, bool sequence_parallel, const RecomputeChoice& recompute)
        : device_({.keep_allocations = false, .keep_ops = false}), tp_("tp", kTensorRanks, 1), one_("one", 1, 0) {
        TrainingTask task = small::task(model, {.tp = kTensorRanks});
        task.model.layers = 2;
        const auto split = automatic_stage_split(2, 0, 1, 1).value();
        task.layout.split = std::make_shared<const StageSplit>(split);
        ChunkBuffers buffers(device_, stage_parameters(task.model, task.layout, 0)[0], Dtype::fp32, {});
        RankContext context;
        context.device = &device_;
        context.tp = &tp_;
        context.cp = context.ep = context.etp = &one_;
        context.sequence_parallel = sequence_parallel;
        ModelChunk chunk(task.model, split.chunk(0, 0), buffers.weights(), recompute);
        units_.resize(static_cast<std::size_t>(chunk.units()));
        chunk.set_events(this);
        tp_.set_listener(this);
        device_.set_listener(this);
        MicrobatchContext microbatch;
        microbatch.batch = kBatch;
        microbatch.sequence = kSequence;
        const Tensor ids = device_.empty({kBatch * kSequence}, Dtype::int32, MemoryCategory::activations, "ids");
        ChunkSaved saved;
        (void)chunk.forward(context, microbatch, ids, ids, saved);
        finish_forward();
        backward_ = true;
        (void)chunk.backward(context, microbatch, {}, 1.0, ids, ids, saved);
    }

    /// 0 embedding, then attention and MLP of each layer, then the loss head.
    [[nodiscard]] const Unit& unit(int i) const { return units_[static_cast<std::size_t>(i)]; }

private:
    void before_use(int unit) override {
        if (!backward_) finish_forward();
        using_ = unit;
    }
    void after_backward(int unit) override {
        // A recomputed forward may have gone before: the layer's own units share what it did, see totals of layers.
        auto& own = units_[static_cast<std::size_t>(unit)];
        own.backward.insert(own.backward.end(), collectives_.begin(), collectives_.end());
        own.matmul_flops += flops_;
        collectives_.clear();
        flops_ = 0;
    }
    void finish_forward() {
        auto& own = units_[static_cast<std::size_t>(using_)];
        own.forward.insert(own.forward.end(), collectives_.begin(), collectives_.end());
        own.matmul_flops += flops_;
        collectives_.clear();
        flops_ = 0;
    }
    void on_collective(const CollectiveRecord& record) override { collectives_.push_back(record); }
    void on_op(const OpRecord& record) override {
        if (record.name.starts_with("matmul")) flops_ += record.flops;
    }

    MetaDevice device_;
    RecordingCommunicator tp_, one_;
    std::vector<Unit> units_;
    std::vector<CollectiveRecord> collectives_;
    double flops_ = 0;
    int using_ = 0;
    bool backward_ = false;
};

/// t times the fp32 elements that ring algorithms move per rank: a gather or scatter of n elements moves (t-1)/t·n, an
/// all-reduce is a scatter and a gather (Patarasuk and Yuan, JPDC 2009).
std::int64_t moved_times_t(const std::vector<CollectiveRecord>& records) {
    std::int64_t moved = 0;
    for (const CollectiveRecord& record : records) {
        const std::int64_t phases = record.kind == CollectiveKind::all_reduce ? 2 : 1;
        moved += phases * (record.ranks - 1) * record.payload_bytes / 4;
    }
    return moved;
}

/// t·Φ with Φ = (t-1)/t·b·s·h.
std::int64_t phi_times_t(const ModelSpec& model) {
    return (kTensorRanks - 1) * kBatch * kSequence * model.hidden;
}

ModelSpec wide_gpt() {
    ModelSpec model = small::gpt();
    model.ffn = 4 * model.hidden;
    return model;
}

RecomputeChoice full_recompute() {
    RecomputeChoice choice;
    choice.full = RecomputeMethod::uniform;
    choice.layers = 1;
    return choice;
}

// Shoeybi et al., arXiv 1909.08053, section 3: two all-reduces forward and two backward per layer, one each for the
// attention and the MLP half; an all-reduce is 2Φ.
TEST(ClosedForms, AttentionAndMlpEachMoveFourPhi) {
    const ModelSpec model = wide_gpt();
    const TracedChunk traced(model, false, {});
    for (int unit = 1; unit <= 4; ++unit) {
        EXPECT_EQ(moved_times_t(traced.unit(unit).forward), 2 * phi_times_t(model)) << "unit " << unit;
        EXPECT_EQ(moved_times_t(traced.unit(unit).backward), 2 * phi_times_t(model)) << "unit " << unit;
    }
}

// Korthikanti et al., arXiv 2205.05198, section 4.2: with sequence parallelism an all-gather and a reduce-scatter take
// the place of each all-reduce, and the input of the first product, kept as the rank's own slice, is gathered once more
// in the backward.
TEST(ClosedForms, WithSequenceParallelismAttentionAndMlpEachMoveFivePhi) {
    const ModelSpec model = wide_gpt();
    const TracedChunk traced(model, true, {});
    for (int unit = 1; unit <= 4; ++unit) {
        EXPECT_EQ(moved_times_t(traced.unit(unit).forward), 2 * phi_times_t(model)) << "unit " << unit;
        EXPECT_EQ(moved_times_t(traced.unit(unit).backward), 3 * phi_times_t(model)) << "unit " << unit;
    }
}

// Shoeybi et al., section 3: the loss over a divided vocabulary exchanges b·s values, not b·s·v. Here three times: the
// maximum, the target's logit, the sum of exponentials (Megatron-LM core/tensor_parallel/cross_entropy.py).
TEST(ClosedForms, CrossEntropyReducesThreeValuesPerToken) {
    for (const bool sequence_parallel : {false, true}) {
        const TracedChunk traced(wide_gpt(), sequence_parallel, {});
        std::vector<std::int64_t> reductions;
        for (const CollectiveRecord& record : traced.unit(5).forward) {
            if (record.kind == CollectiveKind::all_reduce) reductions.push_back(record.payload_bytes);
        }
        EXPECT_EQ(reductions, std::vector<std::int64_t>(3, kBatch * kSequence * 4));
        // Beside them the forward only gathers the head's input rows, where those are divided.
        EXPECT_EQ(traced.unit(5).forward.size(), sequence_parallel ? 4U : 3U);
    }
}

// A recomputed layer runs its forward once more, exchanges included: 2Φ more for each half.
TEST(ClosedForms, FullRecomputeAddsOneForwardsTraffic) {
    for (const bool sequence_parallel : {false, true}) {
        const ModelSpec model = wide_gpt();
        const TracedChunk traced(model, sequence_parallel, full_recompute());
        for (int layer = 0; layer < 2; ++layer) {
            std::int64_t moved = 0;
            for (const int unit : {1 + 2 * layer, 2 + 2 * layer})
                moved += moved_times_t(traced.unit(unit).forward) + moved_times_t(traced.unit(unit).backward);
            EXPECT_EQ(moved, 2 * (sequence_parallel ? 7 : 6) * phi_times_t(model)) << "layer " << layer;
        }
    }
}

// Narayanan et al., arXiv 2104.04473, appendix: the matrix products of a layer take 24·b·s·h² FLOPs forward (beside
// attention's own s² part), twice that backward, and full recomputation adds one more forward: factor 4 instead of 3.
TEST(ClosedForms, MatrixProductsTake24BshhForwardAndFourTimesThatWithRecompute) {
    const ModelSpec model = wide_gpt();
    const auto h = static_cast<double>(model.hidden);
    const double forward = 24 * static_cast<double>(kBatch * kSequence) * h * h / static_cast<double>(kTensorRanks);
    const auto layer_flops = [](const TracedChunk& traced, int layer) {
        return traced.unit(1 + 2 * layer).matmul_flops + traced.unit(2 + 2 * layer).matmul_flops;
    };
    const TracedChunk kept(model, false, {}), recomputed(model, false, full_recompute());
    for (int layer = 0; layer < 2; ++layer) {
        EXPECT_EQ(layer_flops(kept, layer), 3 * forward);
        EXPECT_EQ(layer_flops(recomputed, layer), 4 * forward);
    }
}

/// High-water mark of activations of one rank of a pipeline whose middle chunks hold one layer each.
struct PipelineRun {
    std::int64_t high_water = 0;  ///< less the gradient message that stays open where a forward follows a backward
    std::int64_t live = 0;
};

TrainingTask pipeline_task(int pp, int vpp, std::int64_t microbatches, std::int64_t group) {
    ModelSpec model = small::gpt();
    model.layers = static_cast<std::int64_t>(pp) * vpp;
    TrainingTask task = small::task(model, {.pp = pp, .vpp = vpp});
    task.training.precision = Precision::bf16;
    task.batch.global_batch = microbatches;
    task.layout.num_microbatches = microbatches;
    task.layout.group_size = group;
    return task;
}

PipelineRun run_pipeline(int pp, int vpp, std::int64_t microbatches, std::int64_t group, int rank) {
    const TrainingTask task = pipeline_task(pp, vpp, microbatches, group);
    MetaDevice device({.keep_allocations = false, .keep_ops = false});
    RankTrainer trainer(task, device, recording_world(rank, pp));
    (void)trainer.step(small::tokens_of, 1e-3);
    const std::int64_t warmup = vpp == 1 ? pp - rank - 1 : 2 * (pp - rank - 1) + (vpp - 1) * group;
    const std::int64_t message = task.batch.sequence * task.model.hidden * 2;
    const bool forward_behind_backward = microbatches * vpp > warmup + 1;
    return {device.memory().high_water[static_cast<std::size_t>(MemoryCategory::activations)] - (forward_behind_backward ? message : 0),
            std::min(microbatches * vpp, warmup + 1)};
}

/// What one microbatch keeps in a middle chunk of one layer between its passes, token ids included.
std::int64_t kept_by_one_microbatch() {
    const TrainingTask task = pipeline_task(3, 1, 1, 3);
    MetaDevice device({.keep_allocations = false, .keep_ops = false});
    ChunkBuffers buffers(device, stage_parameters(task.model, task.layout, 1)[0], Dtype::bf16, {});
    RecordingCommunicator one("one", 1, 0);
    RankContext context;
    context.device = &device;
    context.tp = context.cp = context.ep = context.etp = &one;
    context.dtype = Dtype::bf16;
    ModelChunk chunk(task.model, task.layout.split->chunk(1, 0), buffers.weights(), {});
    MicrobatchContext microbatch;
    microbatch.sequence = task.batch.sequence;
    const std::int64_t rows = task.batch.sequence;
    const Tensor input = device.empty({rows, task.model.hidden}, Dtype::bf16, MemoryCategory::communication, "input");
    ChunkSaved saved;
    (void)chunk.forward(context, microbatch, input, {}, saved);
    return device.memory().current[static_cast<std::size_t>(MemoryCategory::activations)] + 2 * rows * 4;
}

// 1F1B: warm-up of pp - rank - 1 forwards, so min(m, pp - rank) microbatches alive (Narayanan et al., arXiv 2104.04473,
// section 2.2.1).
TEST(ClosedForms, OneForwardOneBackwardKeepsMinOfMicrobatchesAndWarmUpPlusOne) {
    const std::int64_t one = kept_by_one_microbatch();
    const PipelineRun two = run_pipeline(6, 1, 12, 6, 4);
    ASSERT_EQ(two.live, 2);
    for (const int rank : {1, 2, 3}) {
        const PipelineRun run = run_pipeline(6, 1, 12, 6, rank);
        EXPECT_EQ(run.live, 6 - rank);
        EXPECT_EQ(run.high_water - two.high_water, (run.live - 2) * one) << "rank " << rank;
    }
    for (const std::int64_t microbatches : {2, 3, 4, 5, 6, 40}) {
        const PipelineRun run = run_pipeline(6, 1, microbatches, 6, 1);
        EXPECT_EQ(run.live, std::min<std::int64_t>(microbatches, 5));
        EXPECT_EQ(run.high_water - two.high_water, (run.live - 2) * one) << microbatches << " microbatches";
    }
}

// Interleaved: warm-up of 2(pp - rank - 1) + (vpp - 1)·group forwards; pairs of microbatch and chunk count (Megatron-LM
// core/pipeline_parallel/schedules.py, get_pp_rank_microbatches).
TEST(ClosedForms, InterleavedKeepsMinOfAllPairsAndWarmUpPlusOne) {
    const std::int64_t one = kept_by_one_microbatch();
    const PipelineRun reference = run_pipeline(4, 2, 8, 4, 2);
    ASSERT_EQ(reference.live, 7);
    for (const auto& [vpp, microbatches, group, rank] :
         {std::array{2, 8, 4, 1}, std::array{2, 4, 4, 1}, std::array{2, 4, 4, 2}, std::array{3, 8, 4, 1}, std::array{3, 8, 4, 2},
          std::array{2, 12, 6, 1}, std::array{2, 12, 6, 2}, std::array{3, 40, 8, 2}}) {
        const PipelineRun run = run_pipeline(4, vpp, microbatches, group, rank);
        ScheduleRequest request;
        request.pp = 4;
        request.vpp = vpp;
        request.microbatches = microbatches;
        request.group_size = group;
        EXPECT_EQ(Schedule(request).rank(rank).peak_live, run.live);
        EXPECT_EQ(run.high_water - reference.high_water, (run.live - reference.live) * one)
            << "vpp " << vpp << " microbatches " << microbatches << " group " << group << " rank " << rank;
    }
}

}  // namespace
}  // namespace mgplan::model::closed_forms_test
