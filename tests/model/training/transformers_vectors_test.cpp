// Small models of Hugging Face transformers against the layers here (tests/golden/make_transformers_vectors.py): with the same weights,
// read by their published names, the loss and the gradient of every published tensor are the same, on one rank and divided.

#include <cmath>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <span>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "formats/hugging_face/hugging_face.hpp"
#include "formats/hugging_face/weight_names.hpp"
#include "model/training/rank_trainer.hpp"
#include "plan/parameters/whole_parameter.hpp"
#include "plan/text/errors.hpp"
#include "runtime/checkpoint/published_checkpoint.hpp"
#include "runtime/comm/in_process/in_process_world.hpp"
#include "runtime/cpu/cpu_device.hpp"
#include "tests/support/small_training.hpp"
#include "tests/support/transformers_vector.hpp"

namespace mgplan::model::transformers_vectors_test {
namespace {

using Values = std::vector<double>;

/// The model as its config says, without auxiliary losses, which the vectors' loss leaves out.
ModelSpec model_of(const tests::TransformersVector& vector) {
    ModelSpec model = formats::read_hugging_face(vector.config, vector.name, vector.name).model;
    model.vocab_divisor = 8;
    if (model.moe) model.moe->auxiliary_loss = model.moe->sequence_auxiliary_loss = 0;
    return model;
}

TrainingTask task_of(const tests::TransformersVector& vector, const tests::Case& layout) {
    TrainingTask task = tests::task_for(model_of(vector), layout, Precision::fp64, vector.length);
    task.batch.global_batch = vector.sequences;
    task.layout.num_microbatches = vector.sequences;
    return task;
}

/// Whole gradients by parameter, from the shards of all ranks.
struct Gathered {
    double loss = 0;
    std::map<std::string, Values> gradients;
};

Gathered train_once(const tests::TransformersVector& vector, const TrainingTask& task, const runtime::PublishedCheckpoint& weights) {
    Gathered gathered;
    std::mutex mutex;
    runtime::InProcessWorld world(static_cast<int>(task.layout.sizes.world));
    const SequenceSource source = [&](std::int64_t sequence, std::span<std::int32_t> tokens) {
        const auto first = vector.tokens.begin() + sequence % vector.sequences * (vector.length + 1);
        std::copy(first, first + vector.length + 1, tokens.begin());
    };
    runtime::run_ranks(world, [&](int rank) {
        runtime::CpuDevice device;
        RankTrainer trainer(task, device, world.view(rank));
        weights.load(trainer.state());
        trainer.go_on_from({});
        const StepReport report = trainer.step(source, 0.0);
        const ParallelSizes& sizes = task.layout.sizes;
        const int tp = rank % static_cast<int>(sizes.tp);
        const ShardPlace place{tp, sizes.tp, rank / static_cast<int>(sizes.tp), 0, 1, sizes.etp > 1 ? tp : 0, sizes.etp};
        const std::scoped_lock lock(mutex);
        gathered.loss = report.loss;
        for (const Parameter& parameter : trainer.buffers(0).parameters()) {
            const Tensor& gradient = trainer.buffers(0).weights().at(parameter.name).gradient;
            Values own(static_cast<std::size_t>(gradient.elements()));
            device.read(gradient, own.data());
            const ShardOfWhole shard = shard_of_whole(task.model, parameter, place);
            Values& whole = gathered.gradients[whole_name(task.model, parameter, place)];
            whole.resize(static_cast<std::size_t>(shard.whole_elements()));
            for (const WholeRun& run : runs_in_whole(shard, 0, std::ssize(own)))
                std::copy_n(own.begin() + run.in_shard, run.size, whole.begin() + run.in_whole);
        }
    });
    return gathered;
}

/// The same gradients under the names of the checkpoint.
std::map<std::string, Values> published(const PublishedWeights& weights, const std::map<std::string, Values>& gradients) {
    std::map<std::string, Values> result;
    for (const PublishedParameter& parameter : weights.parameters) {
        const auto found = gradients.find(parameter.name);
        if (found == gradients.end()) continue;  // biases of experts have none
        for (const PublishedRows& rows : parameter.pieces) {
            const PublishedTensor& tensor = weights.tensors.at(rows.tensor);
            Values& values = result[tensor.name];
            values.resize(static_cast<std::size_t>(tensor.elements()), NAN);
            for (std::int64_t row = 0; row < rows.rows; ++row) {
                for (std::int64_t column = 0; column < parameter.columns; ++column)
                    values.at(static_cast<std::size_t>(rows.begin + row * rows.row_step + column * rows.column_step)) =
                        found->second.at(static_cast<std::size_t>((rows.first_row + row) * parameter.columns + column));
            }
        }
    }
    return result;
}

double norm_of(const Values& values) {
    double squares = 0;
    for (const double value : values) squares += value * value;
    return std::sqrt(squares);
}

void expect_same(const tests::TransformersVector& vector, const tests::Case& layout) {
    SCOPED_TRACE(vector.name + " " + layout.name);
    const TrainingTask task = task_of(vector, layout);
    const tests::VectorRepository repository(vector);
    const auto weights = runtime::PublishedCheckpoint::open(repository.path(), formats::published_weights(task.model));
    const Gathered ours = train_once(vector, task, *weights);
    constexpr double kTolerance = 1e-5;
    EXPECT_NEAR(ours.loss / vector.loss, 1, kTolerance);
    const auto gradients = published(weights->weights(), ours.gradients);
    double all = 0;
    std::set<std::string> expected;
    for (const auto& [name, tensor] : vector.tensors) {
        if (!name.starts_with("gradient/")) continue;
        expected.insert(name.substr(9));
        const auto values = vector.elements<float>(name);
        all += std::pow(norm_of({values.begin(), values.end()}), 2);
    }
    all = std::sqrt(all);
    std::set<std::string> names;
    for (const auto& [name, values] : gradients) names.insert(name);
    EXPECT_EQ(names, expected);
    for (const auto& [name, values] : gradients) {
        if (!expected.contains(name)) continue;
        const auto theirs = vector.elements<float>("gradient/" + name);
        ASSERT_EQ(values.size(), theirs.size()) << name;
        Values difference(values.size());
        for (std::size_t i = 0; i < values.size(); ++i) difference[i] = values[i] - static_cast<double>(theirs[i]);
        const double size = norm_of({theirs.begin(), theirs.end()});
        // Some are nothing but rounding: a key's bias cancels in the softmax.
        EXPECT_LE(norm_of(difference), kTolerance * size + 1e-7 * all) << name << " of size " << size << ", gradient of all " << all;
    }
}

const std::vector<tests::Case>& layouts() {
    static const std::vector<tests::Case> kLayouts{
        {.name = "one"},
        {.name = "tp2", .tp = 2, .etp = 2, .sequence_parallel = true, .distributed_optimizer = false},
        {.name = "pp2", .pp = 2, .distributed_optimizer = false}};
    return kLayouts;
}

/// What no layout of two ranks divides, and why.
std::string refused(const std::string& name, const std::string& layout) {
    static const std::map<std::string, std::string> kRefused{
        {"mamba2 tp2", "tp = 2 over 1 groups of Mamba-2"},  // one norm over all groups, so the vector has one
    };
    const auto found = kRefused.find(name + " " + layout);
    return found == kRefused.end() ? "" : found->second;
}

class TransformersVectors : public testing::TestWithParam<std::string> {};

TEST_P(TransformersVectors, LossAndGradientsAreThoseOfTransformers) {
    const tests::TransformersVector vector = tests::read_vector(GetParam());
    for (const tests::Case& layout : layouts()) {
        const std::vector<std::string> obstacles = features_not_executed(task_of(vector, layout));
        const std::string known = refused(vector.name, layout.name);
        if (known.empty())
            EXPECT_THAT(obstacles, testing::IsEmpty()) << layout.name;
        else
            EXPECT_THAT(obstacles, testing::ElementsAre(testing::HasSubstr(known))) << layout.name;
        if (obstacles.empty()) expect_same(vector, layout);
    }
}

INSTANTIATE_TEST_SUITE_P(Types, TransformersVectors, testing::ValuesIn(tests::vector_names()), [](const auto& test) {
    std::string name = test.param;
    for (char& c : name) c = c == '-' || c == '.' ? '_' : c;
    return name;
});

}  // namespace
}  // namespace mgplan::model::transformers_vectors_test
