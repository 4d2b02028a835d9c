// Runs that save themselves, end, and go on: under the same layout to the bit, under others to rounding, and not at all from
// files that something has happened to.
#include <sys/resource.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "plan/text/errors.hpp"
#include "plan/training/data_sharding.hpp"
#include "runtime/checkpoint/checkpoint_folder.hpp"
#include "runtime/checkpoint/saved_checkpoint.hpp"
#include "runtime/data/synthetic_stream.hpp"
#include "runtime/training_run/training_run.hpp"
#include "tests/runtime/checkpoint/temporary_folder.hpp"
#include "tests/support/small_training.hpp"

namespace mgplan::runtime::checkpoint_run_test {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using tests::Case;
using tests::TemporaryFolder;

ModelSpec with_dropout(ModelSpec model) {
    model.hidden_dropout = 0.1;
    return model;
}

/// Every other layer a mixture, balanced by biases of its experts, which no optimizer knows.
ModelSpec small_mixture() {
    ModelSpec model = tests::small_llama();
    MoeSpec& moe = model.moe.emplace();
    moe.experts = 4;
    moe.top_k = 2;
    moe.expert_ffn = 24;
    moe.score = RouterScore::sigmoid;
    moe.expert_bias = true;
    moe.expert_bias_update_rate = 0.01;
    model.moe_layers = {false, true, false, true};
    return model;
}

/// Six steps, over which the learning rate rises.
TrainingRunOptions run_of(const ModelSpec& model, const Case& c, Precision precision = Precision::fp32) {
    TrainingRunOptions run;
    run.task = tests::task_for(model, c, precision);
    run.steps = 6;
    run.learning_rate.maximum = 1e-2;
    run.learning_rate.warmup_steps = 8;
    run.data = std::make_shared<Sequences>(std::make_shared<SyntheticStream>(1, 61), 16, 8, 1);
    return run;
}

/// The first three steps of a run, saved.
void save_three(TrainingRunOptions run, const std::string& folder) {
    run.steps = 3;
    run.checkpoint.folder = folder;
    EXPECT_TRUE(run_in_process(run).as_predicted);
    EXPECT_THAT(complete_checkpoints(folder), ElementsAre(3));
}

RunValues go_on(TrainingRunOptions run, const std::string& folder) {
    run.checkpoint.resume = SavedCheckpoint::open_last(folder);
    return run_in_process(run);
}

TEST(CheckpointRun, GoesOnToTheBitUnderTheSameLayout) {
    struct Training {
        ModelSpec model;
        Case layout;
        Precision precision = Precision::fp32;
    };
    const std::vector<Training> trainings{
        {with_dropout(tests::small_llama()), {.name = "tp2 pp2 dp2", .tp = 2, .pp = 2, .dp = 2, .sequence_parallel = true}},
        {with_dropout(tests::small_gpt()), {.name = "tied, whole state", .tp = 2, .pp = 2, .dp = 2, .distributed_optimizer = false}},
        {tests::small_llama(), {.name = "interleaved", .pp = 2, .vpp = 2, .dp = 2}, Precision::bf16},
        {tests::small_gpt(), {.name = "fp64", .cp = 2, .dp = 2}, Precision::fp64},
        {with_dropout(tests::small_llama()),
         {.name = "zb-v", .tp = 2, .pp = 2, .vpp = 2, .sequence_parallel = true, .schedule = SplitSchedule::zb_v}},
        {tests::small_llama(2), {.name = "fp8 with delayed scaling", .tp = 2, .pp = 2, .dp = 2, .sequence_parallel = true}, Precision::fp8},
        {small_mixture(), {.name = "mixture", .pp = 2, .dp = 2, .ep = 2}},
        {small_mixture(),
         {.name = "mixture, whole state", .tp = 2, .dp = 2, .ep = 2, .sequence_parallel = true, .distributed_optimizer = false},
         Precision::bf16},
    };
    for (const auto& [model, layout, precision] : trainings) {
        SCOPED_TRACE(layout.name);
        const TemporaryFolder folder;
        const TrainingRunOptions run = run_of(model, layout, precision);
        const RunValues whole = run_in_process(run);
        save_three(run, folder.path());
        const RunValues rest = go_on(run, folder.path());
        ASSERT_EQ(rest.steps.size(), 3U);
        for (std::size_t i = 0; i < 3; ++i) {
            EXPECT_EQ(rest.steps[i].loss, whole.steps[i + 3].loss) << i;
            EXPECT_EQ(rest.steps[i].grad_norm, whole.steps[i + 3].grad_norm) << i;
            EXPECT_EQ(rest.steps[i].learning_rate, whole.steps[i + 3].learning_rate) << i;
        }
        EXPECT_TRUE(rest.as_predicted);
        for (const auto& rank : rest.ranks) EXPECT_EQ(rank.measured, rank.predicted) << rank.rank;
    }
}

/// Losses of `whole`'s steps behind the third, within rounding.
void expect_same_losses(const RunValues& rest, const RunValues& whole) {
    ASSERT_EQ(rest.steps.size(), 3U);
    for (std::size_t i = 0; i < 3; ++i) EXPECT_NEAR(rest.steps[i].loss / whole.steps[i + 3].loss, 1, 1e-6) << i;
    EXPECT_TRUE(rest.as_predicted);
}

TEST(CheckpointRun, GoesOnUnderEveryOtherLayout) {
    const std::vector<Case> layouts{
        {.name = "tp4 dp2", .tp = 4, .dp = 2, .sequence_parallel = true},
        {.name = "one rank"},
        {.name = "interleaved", .pp = 2, .vpp = 2},
        {.name = "cp2 tp2", .tp = 2, .cp = 2, .dp = 2},
        {.name = "dp4, whole state", .dp = 4, .distributed_optimizer = false},
    };
    for (const ModelSpec& model : {with_dropout(tests::small_gpt()), tests::small_llama()}) {
        const TemporaryFolder folder;
        const TrainingRunOptions saver = run_of(model, {.name = "saver", .tp = 2, .pp = 2, .dp = 2, .sequence_parallel = true});
        const RunValues whole = run_in_process(saver);
        save_three(saver, folder.path());
        for (const Case& layout : layouts) {
            SCOPED_TRACE(model.name + ", " + layout.name);
            expect_same_losses(go_on(run_of(model, layout), folder.path()), whole);
        }
    }
}

/// Scales that the steps before decide are those of all ranks: the next forward casts alike wherever it runs.
TEST(CheckpointRun, GoesOnWithDelayedScalingUnderOtherLayouts) {
    const auto in_fp8 = [](const Case& layout) {
        TrainingRunOptions run = run_of(tests::small_llama(2), layout, Precision::fp8);
        run.task.training.megatron.fp8_recipe = Fp8Recipe::delayed;
        return run;
    };
    const Case saver{.name = "pp2 dp2", .pp = 2, .dp = 2};
    const TemporaryFolder folder;
    const RunValues whole = run_in_process(in_fp8(saver));
    save_three(in_fp8(saver), folder.path());
    for (const Case& layout : {Case{.name = "one rank"},
                               {.name = "dp4, whole state", .dp = 4, .distributed_optimizer = false},
                               {.name = "interleaved", .pp = 2, .vpp = 2}}) {
        SCOPED_TRACE(layout.name);
        const RunValues rest = go_on(in_fp8(layout), folder.path());
        ASSERT_EQ(rest.steps.size(), 3U);
        EXPECT_NEAR(rest.steps[0].loss / whole.steps[3].loss, 1, 1e-7);
        for (std::size_t i = 1; i < 3; ++i) EXPECT_NEAR(rest.steps[i].loss / whole.steps[i + 3].loss, 1, 5e-3) << i;
        EXPECT_TRUE(rest.as_predicted);
    }
}

/// Histories of experts too, which ranks of etp and edp have alike: each is in the checkpoint by the expert's number in the model.
TEST(CheckpointRun, GoesOnWithDelayedScalingOfExpertsUnderOtherLayouts) {
    const auto in_fp8 = [](const Case& layout) {
        ModelSpec model = small_mixture();
        model.hidden = model.ffn = model.vocab = 64;
        model.head_dim = 16;
        model.moe->expert_ffn = model.moe->shared_ffn = 32;
        TrainingRunOptions run = run_of(model, layout, Precision::fp8);
        run.task.training.megatron.fp8_recipe = Fp8Recipe::delayed;
        return run;
    };
    const Case saver{.name = "pp2 dp2 ep2", .pp = 2, .dp = 2, .ep = 2};
    const TemporaryFolder folder;
    const RunValues whole = run_in_process(in_fp8(saver));
    save_three(in_fp8(saver), folder.path());
    for (const Case& layout : {saver,
                               Case{.name = "one rank"},
                               {.name = "dp2, whole state", .dp = 2, .distributed_optimizer = false},
                               {.name = "dp4 ep4", .dp = 4, .ep = 4},
                               {.name = "dp4 ep2", .dp = 4, .ep = 2},
                               {.name = "tp2 etp2", .tp = 2, .etp = 2, .sequence_parallel = true}}) {
        SCOPED_TRACE(layout.name);
        const RunValues rest = go_on(in_fp8(layout), folder.path());
        ASSERT_EQ(rest.steps.size(), 3U);
        // Sums that ranks of tp have parts of are rounded to bf16 in parts.
        EXPECT_NEAR(rest.steps[0].loss / whole.steps[3].loss, 1, layout.tp > 1 ? 1e-3 : 1e-7);
        for (std::size_t i = 1; i < 3; ++i) EXPECT_NEAR(rest.steps[i].loss / whole.steps[i + 3].loss, 1, 5e-3) << i;
        EXPECT_TRUE(rest.as_predicted);
    }
}

/// Main parameters are saved as ever: a run whose parameters are stored in fp8 goes on with them, and one whose parameters are not.
TEST(CheckpointRun, GoesOnWithParametersStoredInFp8) {
    for (const Fp8Recipe recipe : {Fp8Recipe::tensorwise, Fp8Recipe::delayed}) {
        const auto in_fp8 = [&](const Case& layout, bool stored = true) {
            TrainingRunOptions run = run_of(tests::small_llama(2), layout, Precision::fp8);
            run.task.training.megatron.fp8_recipe = recipe;
            run.task.training.fp8_parameters = stored;
            return run;
        };
        const Case saver{.name = "pp2 dp2", .pp = 2, .dp = 2};
        const TemporaryFolder folder;
        const RunValues whole = run_in_process(in_fp8(saver));
        save_three(in_fp8(saver), folder.path());
        const RunValues same = go_on(in_fp8(saver), folder.path());
        for (std::size_t i = 0; i < 3; ++i) EXPECT_EQ(same.steps.at(i).loss, whole.steps[i + 3].loss) << i;
        const RunValues cast = go_on(in_fp8(saver, false), folder.path());
        EXPECT_EQ(cast.steps.at(0).loss, whole.steps[3].loss);
        for (const Case& layout : {Case{.name = "one rank"}, Case{.name = "dp4", .dp = 4}, Case{.name = "interleaved", .pp = 2, .vpp = 2},
                                   Case{.name = "tp2 dp2", .tp = 2, .dp = 2, .sequence_parallel = true}}) {
            SCOPED_TRACE(layout.name);
            const RunValues rest = go_on(in_fp8(layout), folder.path());
            // Sums that ranks of tp have parts of are rounded to bf16 in parts, and current scaling casts each part by its own values.
            EXPECT_NEAR(rest.steps.at(0).loss / whole.steps[3].loss, 1, layout.tp > 1 ? 5e-3 : 1e-7);
            for (std::size_t i = 1; i < 3; ++i) EXPECT_NEAR(rest.steps.at(i).loss / whole.steps[i + 3].loss, 1, 1e-2) << i;
            EXPECT_TRUE(rest.as_predicted);
        }
    }
}

/// Matrices have one moment, which belongs to one rank whole or to all.
TEST(CheckpointRun, GoesOnWithMuonUnderOtherLayouts) {
    const auto with_muon = [](const Case& layout) {
        TrainingRunOptions run = run_of(tests::small_llama(), layout);
        run.task.training.megatron.optimizer = OptimizerKind::muon;
        return run;
    };
    const Case saver{.name = "tp2 pp2 dp2", .tp = 2, .pp = 2, .dp = 2, .sequence_parallel = true};
    const TemporaryFolder folder;
    const RunValues whole = run_in_process(with_muon(saver));
    save_three(with_muon(saver), folder.path());
    const RunValues same = go_on(with_muon(saver), folder.path());
    for (std::size_t i = 0; i < 3; ++i) EXPECT_EQ(same.steps.at(i).loss, whole.steps[i + 3].loss) << i;
    for (const Case& layout : {Case{.name = "one rank"}, Case{.name = "dp4, whole state", .dp = 4, .distributed_optimizer = false},
                               Case{.name = "interleaved", .pp = 2, .vpp = 2, .dp = 2}}) {
        SCOPED_TRACE(layout.name);
        expect_same_losses(go_on(with_muon(layout), folder.path()), whole);
    }
}

TEST(CheckpointRun, GoesOnFromChunksInAVAndBack) {
    const ModelSpec model = with_dropout(tests::small_llama());
    const Case v_shaped{.name = "dualpipe-v", .pp = 2, .vpp = 2, .dp = 2, .schedule = SplitSchedule::dualpipe_v};
    const Case interleaved{.name = "interleaved", .pp = 2, .vpp = 2, .dp = 2};
    for (const auto& [from, to] :
         {std::pair{v_shaped, interleaved}, std::pair{interleaved, v_shaped}, std::pair{v_shaped, Case{.name = "one"}}}) {
        SCOPED_TRACE(from.name + " to " + to.name);
        const TemporaryFolder folder;
        const RunValues whole = run_in_process(run_of(model, from));
        save_three(run_of(model, from), folder.path());
        expect_same_losses(go_on(run_of(model, to), folder.path()), whole);
    }
}

TEST(CheckpointRun, GoesOnUnderEveryOtherLayoutOfAMixture) {
    const TemporaryFolder folder, back;
    const TrainingRunOptions saver = run_of(small_mixture(), {.name = "saver", .pp = 2, .dp = 2, .ep = 2});
    const RunValues whole = run_in_process(saver);
    save_three(saver, folder.path());
    for (const Case& layout : {Case{.name = "tp2 etp2", .tp = 2, .dp = 2, .ep = 2, .etp = 2, .sequence_parallel = true},
                               Case{.name = "ep4", .dp = 4, .ep = 4, .distributed_optimizer = false}, Case{.name = "one rank"}}) {
        SCOPED_TRACE(layout.name);
        expect_same_losses(go_on(run_of(small_mixture(), layout), folder.path()), whole);
    }
    // Through another layout's files and back, without a step between: the same bits.
    TrainingRunOptions other = run_of(small_mixture(), {.name = "other", .tp = 2, .dp = 2, .ep = 2, .etp = 2, .sequence_parallel = true});
    other.checkpoint.folder = back.path();
    other.steps = 4;
    const RunValues there = go_on(other, folder.path());
    other.checkpoint.folder.clear();
    other.steps = 5;
    const RunValues further = go_on(other, back.path());
    EXPECT_NEAR(there.steps.at(0).loss / whole.steps[3].loss, 1, 1e-6);
    EXPECT_NEAR(further.steps.at(0).loss / whole.steps[4].loss, 1, 1e-6);
}

TEST(CheckpointRun, GoesOnBetweenShardedAndWholeParameters) {
    const auto sharded = [](const Case& layout, DataShardingChoice sharding, const ModelSpec& model) {
        TrainingRunOptions run = run_of(model, layout);
        set_data_sharding(sharding, run.task.training);
        run.task.layout.sizes.optimizer_instances = run.task.training.distributed_optimizer_instances;
        return run;
    };
    for (const ModelSpec& model : {with_dropout(tests::small_llama()), small_mixture()}) {
        const int ep = model.moe ? 2 : 1;
        const std::vector<TrainingRunOptions> runs{
            sharded({.name = "full", .dp = 4, .ep = ep}, {DataSharding::full}, model),
            sharded({.name = "hybrid", .dp = 4, .ep = ep}, {DataSharding::hybrid, 2}, model),
            sharded({.name = "gradients", .pp = 2, .dp = 2}, {DataSharding::optimizer_gradients}, model),
            run_of(model, {.name = "one rank"}),
            run_of(model, {.name = "whole state", .dp = 2, .ep = ep, .distributed_optimizer = false}),
        };
        const RunValues whole = run_in_process(runs.front());
        for (std::size_t from = 0; from < runs.size(); ++from) {
            SCOPED_TRACE(testing::Message() << model.name << " from " << from);
            const TemporaryFolder folder;
            save_three(runs[from], folder.path());
            if (from > 0) expect_same_losses(go_on(runs.front(), folder.path()), whole);
            if (from > 0) continue;
            const RunValues same = go_on(runs.front(), folder.path());
            for (std::size_t i = 0; i < 3; ++i) EXPECT_EQ(same.steps.at(i).loss, whole.steps[i + 3].loss) << i;
            for (std::size_t to = 1; to < runs.size(); ++to) expect_same_losses(go_on(runs[to], folder.path()), whole);
        }
    }
}

TEST(CheckpointRun, GoesOnBetweenStateOnTheHostAndOnTheDevice) {
    const auto offloaded = [](const Case& layout, double share) {
        TrainingRunOptions run = run_of(with_dropout(tests::small_llama()), layout);
        run.task.training.offload.optimizer = share;
        run.task.optimizer.staged_elements = 700;
        return run;
    };
    const std::vector<TrainingRunOptions> runs{offloaded({.name = "all", .dp = 2}, 1), offloaded({.name = "half", .dp = 2}, 0.5),
                                               offloaded({.name = "none", .tp = 2}, 0)};
    const RunValues whole = run_in_process(runs.back());
    for (const TrainingRunOptions& from : runs) {
        const TemporaryFolder folder;
        save_three(from, folder.path());
        for (const TrainingRunOptions& to : runs) expect_same_losses(go_on(to, folder.path()), whole);
    }
}

TEST(CheckpointRun, SavesAsOftenAsAskedAndBehindTheLastStep) {
    const TemporaryFolder folder;
    TrainingRunOptions run = run_of(tests::small_llama(), {.name = "two", .dp = 2});
    run.steps = 5;
    run.checkpoint.folder = folder.path();
    run.checkpoint.every = 2;
    std::vector<std::int64_t> told;
    run.checkpoint.on_saved = [&](std::int64_t step, std::int64_t bytes, double /*seconds*/) {
        EXPECT_GT(bytes, 0);
        told.push_back(step);
    };
    // What a save that was cut off has left.
    fs::create_directories(step_folder(folder.path(), 1));
    fs::create_directories(step_folder(folder.path(), 2));
    std::ofstream(step_folder(folder.path(), 1) + "/rank-00000.safetensors") << "half";
    std::ofstream(step_folder(folder.path(), 2) + "/rank-00007.safetensors") << "half";
    EXPECT_TRUE(run_in_process(run).as_predicted);
    EXPECT_THAT(told, ElementsAre(2, 4, 5));
    EXPECT_THAT(complete_checkpoints(folder.path()), ElementsAre(2, 4, 5));
    EXPECT_FALSE(fs::exists(step_folder(folder.path(), 1)));
    EXPECT_FALSE(fs::exists(step_folder(folder.path(), 2) + "/rank-00007.safetensors"));
    // Nothing is left to do; and then two steps more.
    run.checkpoint.resume = SavedCheckpoint::open_last(folder.path());
    EXPECT_TRUE(run_in_process(run).steps.empty());
    run.steps = 7;
    run.checkpoint.keep = 1;
    EXPECT_EQ(run_in_process(run).steps.size(), 2U);
    EXPECT_THAT(complete_checkpoints(folder.path()), ElementsAre(7));
}

/// What going on says, or nothing.
std::string refusal(const TrainingRunOptions& run, const std::string& folder) {
    try {
        static_cast<void>(go_on(run, folder));
        return "";
    } catch (const ConfigError& error) {
        return error.what();
    }
}

std::string contents(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
}

TEST(CheckpointRun, RefusesDamagedFilesByName) {
    const TemporaryFolder folder;
    const TrainingRunOptions run = run_of(tests::small_llama(), {.name = "two", .dp = 2});
    save_three(run, folder.path());
    const std::string first = step_folder(folder.path(), 3) + "/rank-00000.safetensors",
                      second = step_folder(folder.path(), 3) + "/rank-00001.safetensors";
    const std::string good = contents(first), other = contents(second);
    const auto with = [&](const std::string& bytes) {
        std::ofstream(first, std::ios::binary | std::ios::trunc) << bytes;
        return refusal(run, folder.path());
    };
    const auto names_way_out =
        HasSubstr("; restore it, or remove " + step_folder(folder.path(), 3) + " to go on from an earlier checkpoint");
    for (const std::size_t at : {std::size_t{0}, std::size_t{7}, std::size_t{100}, good.size() / 2, good.size() - 1}) {
        std::string flipped = good;
        flipped[at] = static_cast<char>(flipped[at] ^ 0x10);
        EXPECT_THAT(with(flipped), AllOf(HasSubstr(first), names_way_out)) << at;
    }
    EXPECT_THAT(with(good.substr(0, good.size() - 1)), AllOf(HasSubstr(first), HasSubstr("cut off"), names_way_out));
    EXPECT_THAT(with(""), AllOf(HasSubstr(first), HasSubstr("cut off"), names_way_out));
    EXPECT_THAT(with(std::string(good.size(), 'x')), HasSubstr(first));
    EXPECT_THAT(with(other), HasSubstr(first));
    fs::remove(first);
    EXPECT_THAT(refusal(run, folder.path()), AllOf(HasSubstr(first), HasSubstr("No such file"), names_way_out));
    EXPECT_EQ(with(good), "");
    const std::string manifest = contents(manifest_path(folder.path(), 3));
    for (const std::string& text : {std::string("{}"), std::string(), manifest.substr(0, manifest.size() / 2)}) {
        std::ofstream(manifest_path(folder.path(), 3), std::ios::trunc) << text;
        EXPECT_THAT(refusal(run, folder.path()), AllOf(HasSubstr(manifest_path(folder.path(), 3)), names_way_out)) << text.size();
    }
    std::ofstream(manifest_path(folder.path(), 3), std::ios::trunc) << manifest;
    EXPECT_EQ(refusal(run, folder.path()), "");
    fs::rename(first, folder.path() + "/elsewhere");
    fs::create_symlink(folder.path() + "/elsewhere", first);
    EXPECT_THAT(refusal(run, folder.path()), HasSubstr(first + " is a symbolic link (to " + folder.path() + "/elsewhere)"));
}

TEST(CheckpointRun, SavesIntoNoFolderThatIsALink) {
    const TemporaryFolder folder, other;
    const TrainingRunOptions run = run_of(tests::small_llama(), {.name = "two", .dp = 2});
    save_three(run, other.path());
    const std::string theirs = step_folder(other.path(), 3), first = "/rank-00000.safetensors";
    const std::string before = contents(theirs + first);
    TrainingRunOptions own = run;
    own.steps = 3;
    own.task.initialization.seed += 1;
    own.checkpoint.folder = folder.path();
    const auto failure = [&] {
        try {
            static_cast<void>(run_in_process(own));
            return std::string();
        } catch (const RunError& error) {
            return std::string(error.what());
        }
    };
    fs::create_directory_symlink(theirs, step_folder(folder.path(), 3));
    EXPECT_THAT(failure(), HasSubstr(step_folder(folder.path(), 3) + " is a symbolic link (to " + theirs + ")"));
    fs::remove(step_folder(folder.path(), 3));
    fs::create_directory(step_folder(folder.path(), 3));
    fs::create_symlink(theirs + first, step_folder(folder.path(), 3) + first);
    EXPECT_THAT(failure(), AllOf(HasSubstr(step_folder(folder.path(), 3) + first), HasSubstr("is a symbolic link, which is not followed")));
    EXPECT_EQ(contents(theirs + first), before);
    EXPECT_THAT(complete_checkpoints(other.path()), ElementsAre(3));
}

TEST(CheckpointRun, WritesNothingBeforeTheSpeakerMay) {
    const TemporaryFolder folder;
    TrainingRunOptions run = run_of(tests::small_llama(), {.name = "four", .tp = 2, .dp = 2});
    run.steps = 2;
    run.checkpoint.folder = folder.path();
    run.checkpoint.every = 1;
    int saves = 0;
    run.checkpoint.before_save = [&] {
        std::this_thread::sleep_for(std::chrono::milliseconds(50));
        if (++saves == 2) throw RunError("another job has the folder");
    };
    try {
        static_cast<void>(run_in_process(run));
        ADD_FAILURE() << "saved";
    } catch (const RunError& error) {
        EXPECT_THAT(error.what(), HasSubstr("another job has the folder"));
    }
    EXPECT_THAT(complete_checkpoints(folder.path()), ElementsAre(1));
    EXPECT_FALSE(fs::exists(step_folder(folder.path(), 2)));
}

TEST(CheckpointRun, RefusesTheCheckpointOfAnotherTraining) {
    const TemporaryFolder folder;
    save_three(run_of(tests::small_llama(), {.name = "two", .dp = 2}), folder.path());
    const auto saved = SavedCheckpoint::open_last(folder.path());
    const auto refused = [&](const TrainingRunOptions& run) {
        try {
            check_identity(*saved, run.task, *run.data);
            return std::string();
        } catch (const ConfigError& error) {
            return std::string(error.what());
        }
    };
    EXPECT_EQ(refused(run_of(tests::small_llama(), {.name = "one"})), "");
    EXPECT_THAT(refused(run_of(tests::small_gpt(), {.name = "one"})), AllOf(HasSubstr(saved->folder()), HasSubstr("kv_heads = 2, here 4")));
    EXPECT_THAT(refused(run_of(tests::small_llama(), {.name = "one"}, Precision::bf16)), HasSubstr("precision = fp32, here bf16"));
    TrainingRunOptions run = run_of(tests::small_llama(), {.name = "one"});
    run.data = std::make_shared<Sequences>(std::make_shared<SyntheticStream>(2, 61), 16, 8, 1);
    EXPECT_THAT(refused(run), HasSubstr("other tokens"));
    TrainingRunOptions muon = run_of(tests::small_llama(), {.name = "one"});
    muon.task.training.megatron.optimizer = OptimizerKind::muon;
    EXPECT_THAT(refused(muon), HasSubstr("optimizer = adam, here muon"));
    EXPECT_THAT(refusal(muon, folder.path()), HasSubstr("/momentum'; it is of another"));
    // Where nobody asked before, names and shapes say it.
    EXPECT_THAT(refusal(run_of(tests::small_llama(2), {.name = "one"}), folder.path()), HasSubstr("of another model"));
}

/// Delayed scaling would begin without its histories, and current scaling would pass them over.
TEST(CheckpointRun, RefusesTheCheckpointOfAnotherRecipeOfFp8) {
    const auto by = [](Fp8Recipe recipe) {
        TrainingRunOptions run = run_of(tests::small_llama(2), {.name = "one"}, Precision::fp8);
        run.task.training.megatron.fp8_recipe = recipe;
        return run;
    };
    const auto refused = [&](const TemporaryFolder& folder, Fp8Recipe recipe) {
        const TrainingRunOptions run = by(recipe);
        try {
            check_identity(*SavedCheckpoint::open_last(folder.path()), run.task, *run.data);
            return std::string();
        } catch (const ConfigError& error) {
            return std::string(error.what());
        }
    };
    const TemporaryFolder current, delayed;
    save_three(by(Fp8Recipe::tensorwise), current.path());
    save_three(by(Fp8Recipe::delayed), delayed.path());
    EXPECT_EQ(refused(current, Fp8Recipe::tensorwise), "");
    EXPECT_EQ(refused(delayed, Fp8Recipe::delayed), "");
    EXPECT_THAT(refused(current, Fp8Recipe::delayed), HasSubstr("precision = fp8-current, here fp8-delayed"));
    EXPECT_THAT(refused(delayed, Fp8Recipe::tensorwise), HasSubstr("precision = fp8-delayed, here fp8-current"));
}

TEST(CheckpointRun, EndsWithTheReasonWhereTheDiskIsFull) {
    const TemporaryFolder folder;
    TrainingRunOptions run = run_of(tests::small_llama(), {.name = "two", .dp = 2});
    save_three(run, folder.path());
    run.steps = 6;
    run.checkpoint.folder = folder.path();
    run.checkpoint.resume = SavedCheckpoint::open_last(folder.path());
    // No file may grow beyond this: the system answers as it does where a disk has no room.
    rlimit before{};
    ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
    const auto handler = std::signal(SIGXFSZ, SIG_IGN);
    const rlimit small{40'000, before.rlim_max};
    ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &small), 0);
    std::string said;
    try {
        static_cast<void>(run_in_process(run));
    } catch (const RunError& error) {
        said = error.what();
    }
    ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &before), 0);
    std::signal(SIGXFSZ, handler);
    EXPECT_THAT(said, AllOf(HasSubstr(step_folder(folder.path(), 6) + "/rank-0000"), HasSubstr("File too large"), HasSubstr("ulimit -f")));
    EXPECT_THAT(complete_checkpoints(folder.path()), ElementsAre(3));
    EXPECT_EQ(go_on(run, folder.path()).steps.size(), 3U);
    EXPECT_THAT(complete_checkpoints(folder.path()), ElementsAre(3, 6));
}

}  // namespace
}  // namespace mgplan::runtime::checkpoint_run_test
