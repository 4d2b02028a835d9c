// `mgplan run` with ranks as threads: what it prints, and what it refuses.
#include <csignal>
#include <thread>
#include <utility>

#include <nlohmann/json.hpp>

#include "tests/cli/planned_file.hpp"
#include "tests/cli/say.hpp"
#include "tests/support/data_folder.hpp"
#include "tests/support/indexed_dataset_writer.hpp"

namespace mgplan::cli::testing::run_command_test {
namespace {

using planned_file::PlanFile;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

const std::string kText = tests::data_folder() + "/../LICENSE";

TEST(RunCommand, CapturesAndReplaysLayersWithTheLossesOfAnEagerRun) {
    const PlanFile plan("graphed.json", "--world 2 --pp 2 --global-batch 4 --cuda-graphs layer");
    const auto run = [&](const std::string& options) {
        const Said said = say("run " + plan.path() + " --steps 3 --format json" + options);
        EXPECT_EQ(said.code, kDone) << said.err;
        return nlohmann::json::parse(said.out);
    };
    const auto eager = run(" --cuda-graphs none");
    EXPECT_EQ(eager["memory_mode"], "pool");
    for (const std::string options : {"", " --cuda-graphs attn,mlp", " --cuda-graphs attn", " --cuda-graphs full_iteration"}) {
        const auto graphs = run(options);
        EXPECT_EQ(graphs["memory_mode"], "arena");
        EXPECT_EQ(graphs["as_predicted"], true);
        for (std::size_t step = 0; step < 3; ++step) EXPECT_EQ(graphs["steps"][step]["loss"], eager["steps"][step]["loss"]) << options;
        for (const auto& rank : graphs["ranks"]) {
            EXPECT_GT(rank["measured"]["graphs"]["forward_graphs"], 0);
            EXPECT_EQ(rank["measured"]["graphs"], rank["predicted"]["graphs"]);
        }
        // As `mgplan graphs` counts those of the engine that trains, whatever the plan is for.
        const Said counted = say("graphs " + plan.path() + " --policy slots --format json" + options);
        ASSERT_EQ(counted.code, kDone) << counted.err;
        const auto ranks = nlohmann::json::parse(counted.out)["ranks"];
        for (std::size_t rank = 0; rank < 2; ++rank) {
            const auto& measured = graphs["ranks"][rank]["measured"]["graphs"];
            for (const char* name : {"forward_graphs", "backward_graphs", "slots", "static_input_bytes", "boundary_bytes"})
                EXPECT_EQ(measured[name], ranks[rank][name]) << options << name;
        }
    }
    EXPECT_THAT(say("run " + plan.path() + " --steps 2").out, HasSubstr("graphs of each rank"));
}

TEST(RunCommand, RefusesGraphsThatItCannotReplay) {
    const PlanFile plan("graphed.json", "--world 1 --cuda-graphs layer");
    expect_refused("run " + plan.path() + " --steps 1 --memory pool",
                   {"cuda graphs = layer of the plan and --memory pool", "--memory out"});
    expect_refused("run " + plan.path() + " --steps 1 --memory pool --cuda-graphs attn", "--cuda-graphs = attn and --memory pool");
    const PlanFile recomputes("recomputes.json", "--world 1 --recompute full");
    expect_refused("run " + recomputes.path() + " --steps 1 --cuda-graphs layer",
                   {"cuda graphs of single layers cannot hold full recompute", "--cuda-graphs full_iteration"});
    expect_refused("run " + plan.path() + " --steps 1 --cuda-graphs layer,attn", "layer captures all that the other scopes name");
    expect_refused("run " + plan.path() + " --steps 1 --cuda-graphs attention", "'attention' is not known");
    const Said said = say("run " + plan.path() + " --steps 1 --cuda-graphs none --format json");
    ASSERT_EQ(said.code, kDone) << said.err;
    const auto json = nlohmann::json::parse(said.out);
    EXPECT_EQ(json["ranks"][0]["difference"]["peak_bytes"], 0);
    EXPECT_EQ(json["ranks"][0]["predicted"]["breakdown"]["graph_static_inputs"], 0);
}

TEST(RunCommand, TrainsOnARealTextAndPrintsPredictedBesideMeasured) {
    const PlanFile plan("best.json", "--world 8");
    const Said said = say("run " + plan.path() + " --device cpu --steps 6 --format json --data " + kText);
    ASSERT_EQ(said.code, kDone) << said.err;
    const auto json = nlohmann::json::parse(said.out);
    ASSERT_EQ(json["steps"].size(), 6U);
    EXPECT_LT(json["steps"][5]["loss"], json["steps"][0]["loss"].get<double>() - 0.5);
    for (const auto& step : json["steps"]) {
        EXPECT_GT(step["grad_norm"], 0);
        EXPECT_GT(step["seconds"], 0);
    }
    ASSERT_EQ(json["ranks"].size(), 8U);
    for (int rank = 0; rank < 8; ++rank) {
        const auto& values = json["ranks"][static_cast<std::size_t>(rank)];
        EXPECT_EQ(values["rank"], rank);
        EXPECT_GT(values["measured"]["peak_bytes"], 0);
        EXPECT_EQ(values["measured"], values["predicted"]);
        std::int64_t sum = 0;
        for (const auto& [name, bytes] : values["measured"]["breakdown"].items()) sum += bytes.get<std::int64_t>();
        EXPECT_EQ(sum, values["measured"]["peak_bytes"]);
        for (const char* field : {"peak_bytes", "framework_bytes", "reserved_bytes"}) EXPECT_EQ(values["difference"][field], 0);
        for (const char* field : {"breakdown", "high_water"}) {
            for (const auto& [name, bytes] : values["difference"][field].items()) EXPECT_EQ(bytes, 0) << name;
        }
        EXPECT_GT(values["ops"].size(), 3U);
    }
    ASSERT_FALSE(json["collectives"].empty());
    for (const auto& each : json["collectives"]) {
        EXPECT_GT(each["count"], 0);
        EXPECT_EQ(each["count"], each["predicted_count"]);
        EXPECT_EQ(each["payload_bytes"], each["predicted_payload_bytes"]);
    }
    EXPECT_THAT(said.err, HasSubstr("mgplan: step 6 of 6: loss "));
}

TEST(RunCommand, HoldsWhatSimulateSaysOfEveryRankByteForByte) {
    for (const char* options :
         {"--world 4 --tp 2 --pp 2 --vpp 2 --global-batch 8 --micro-batch 1", "--world 2 --pp 1 --tp 1 --cp 1 --global-batch 8",
          "--world 4 --pp 4 --vpp 1 --recompute full --global-batch 16 --micro-batch 2",
          "--world 4 --tp 2 --pp 1 --cp 1 --global-batch 8 --optimizer muon"}) {
        const PlanFile plan("exact.json", std::string(options) + " --engine mgplan");
        const Said simulated = say("simulate " + plan.path() + " --per-rank --device cpu --format json");
        ASSERT_EQ(simulated.code, kDone) << simulated.err;
        const Said trained = say("run " + plan.path() + " --ranks-in-process --steps 2 --format json");
        ASSERT_EQ(trained.code, kDone) << trained.err;
        const auto exact = nlohmann::json::parse(simulated.out)["ranks"], ran = nlohmann::json::parse(trained.out)["ranks"];
        ASSERT_EQ(exact.size(), ran.size());
        for (std::size_t rank = 0; rank < ran.size(); ++rank) {
            SCOPED_TRACE(::testing::Message() << options << ", rank " << rank);
            ASSERT_TRUE(exact[rank]["exact"]);
            const auto& memory = exact[rank]["memory"];
            for (const char* side : {"measured", "predicted"}) {
                const auto& held = ran[rank][side];
                EXPECT_EQ(memory["peak_bytes"], held["peak_bytes"]) << side;
                EXPECT_EQ(memory["framework_bytes"], held["framework_bytes"]) << side;
                for (const char* field : {"breakdown", "high_water"}) {
                    for (const auto& [category, bytes] : memory[field].items()) {
                        const auto other = held[field].value(category, std::int64_t{0});
                        // The run's maxima begin with the weights' initialization, which needs scratch of its own.
                        if (std::string_view(field) == "high_water" && category == "workspace")
                            EXPECT_LE(bytes, other) << side;
                        else
                            EXPECT_EQ(bytes, other) << side << " " << field << " " << category;
                    }
                }
            }
        }
    }
}

TEST(RunCommand, TrainsTheSameAtPlannedOffsets) {
    const PlanFile plan("arena.json", "--world 4 --tp 2 --pp 2 --global-batch 8");
    const Said pool = say("run " + plan.path() + " --steps 2 --format json --memory pool");
    const Said arena = say("run " + plan.path() + " --steps 2 --format json --memory arena");
    ASSERT_EQ(pool.code, kDone) << pool.err;
    ASSERT_EQ(arena.code, kDone) << arena.err;
    const auto a = nlohmann::json::parse(arena.out), p = nlohmann::json::parse(pool.out);
    EXPECT_EQ(a["memory_mode"], "arena");
    EXPECT_EQ(p["memory_mode"], "pool");
    EXPECT_TRUE(a["as_predicted"]);
    for (std::size_t i = 0; i < 2; ++i) EXPECT_EQ(a["steps"][i]["loss"], p["steps"][i]["loss"]);
    for (std::size_t rank = 0; rank < 4; ++rank) {
        const auto& planned = a["ranks"][rank]["arena"];
        EXPECT_EQ(a["ranks"][rank]["measured"]["arena_bytes"], planned["planned_bytes"]);
        EXPECT_EQ(a["ranks"][rank]["measured"]["reserved_bytes"], planned["planned_bytes"]);
        EXPECT_EQ(a["ranks"][rank]["measured"]["peak_bytes"], planned["lower_bound_bytes"]);
        EXPECT_LE(planned["waste"], 0.03);
        EXPECT_TRUE(p["ranks"][rank]["arena"].is_null());
        EXPECT_EQ(p["ranks"][rank]["measured"]["arena_bytes"], 0);
    }
    const Said table = say("run " + plan.path() + " --steps 1 --memory arena");
    EXPECT_THAT(table.out, AllOf(HasSubstr("next to it"), HasSubstr("Every byte held and sent is as predicted.")));
    EXPECT_EQ(say("run " + plan.path() + " --memory heap").code, kBadInput);
}

TEST(RunCommand, TrainsInFp8WithTheBytesThatWerePredicted) {
    const PlanFile narrow("fp8.json", "--world 4 --tp 2 --pp 2 --global-batch 8 --precision fp8-current --engine mgplan"),
        wide("bf16.json", "--world 4 --tp 2 --pp 2 --global-batch 8 --engine mgplan");
    const auto run = [](const PlanFile& plan, const std::string& options) {
        const Said said = say("run " + plan.path() + " --steps 4 --format json" + options);
        EXPECT_EQ(said.code, kDone) << said.err;
        return nlohmann::json::parse(said.out);
    };
    const auto fp8 = run(narrow, ""), bf16 = run(wide, "");
    EXPECT_TRUE(fp8["as_predicted"]);
    for (std::size_t step = 0; step < 4; ++step) {
        const double loss = fp8["steps"][step]["loss"], other = bf16["steps"][step]["loss"];
        EXPECT_NE(loss, other);
        EXPECT_NEAR(loss / other, 1, 0.01);
    }
    // Weights change from step to step, whoever replays what.
    for (const std::string options : {" --cuda-graphs layer", " --cuda-graphs full_iteration"}) {
        const auto other = run(narrow, options);
        EXPECT_TRUE(other["as_predicted"]) << options;
        for (std::size_t step = 0; step < 4; ++step) EXPECT_EQ(other["steps"][step]["loss"], fp8["steps"][step]["loss"]) << options;
    }
    const Said verified = say("verify " + narrow.path() + " --steps 1");
    EXPECT_EQ(verified.code, kDone) << verified.err;
    EXPECT_THAT(verified.err, Not(HasSubstr("differs from the prediction")));
    expect_refused("verify " + narrow.path() + " --steps 1 --cluster dgx-a100-80g",
                   {"dgx-a100-80g has no peak rate for fp8, the plan's precision, which calibrate does not measure; use another cluster"});
    const PlanFile mixture("fp8_mixture.json", "--world 4 --tp 1 --pp 2 --ep 2 --global-batch 8 --precision fp8-current --engine mgplan",
                           "tiny-moe");
    EXPECT_TRUE(run(mixture, "")["as_predicted"]);
    // Scales of the steps before; a step behind the first is cast by what that one had.
    const PlanFile delayed("delayed.json", "--world 4 --tp 2 --pp 2 --global-batch 8 --precision fp8-delayed --engine mgplan");
    const auto followed = run(delayed, "");
    EXPECT_TRUE(followed["as_predicted"]);
    for (std::size_t step = 0; step < 4; ++step) {
        const double loss = followed["steps"][step]["loss"], other = fp8["steps"][step]["loss"];
        EXPECT_NE(loss, other);
        EXPECT_NEAR(loss / other, 1, 0.02);
    }
    for (const std::string options : {" --cuda-graphs layer", " --cuda-graphs full_iteration", " --memory arena"}) {
        const auto other = run(delayed, options);
        EXPECT_TRUE(other["as_predicted"]) << options;
        for (std::size_t step = 0; step < 4; ++step) EXPECT_EQ(other["steps"][step]["loss"], followed["steps"][step]["loss"]) << options;
    }
    const PlanFile experts("fp8_experts.json", "--world 4 --tp 1 --pp 2 --ep 2 --global-batch 8 --precision fp8-delayed --engine mgplan",
                           "tiny-moe");
    const auto mixed = run(experts, ""), graphs = run(experts, " --cuda-graphs attn,moe_router,moe_preprocess");
    for (const auto& each : {mixed, graphs}) {
        EXPECT_TRUE(each["as_predicted"]);
        EXPECT_EQ(each["steps"][3]["loss"], mixed["steps"][3]["loss"]);
    }
}

TEST(RunCommand, GathersParametersInFp8AsMegatronsFlagsAsk) {
    const std::string flags =
        "--num-layers 4 --hidden-size 64 --ffn-hidden-size 128 --num-attention-heads 4 --seq-length 32 --max-position-embeddings 32 "
        "--micro-batch-size 1 --global-batch-size 8 --bf16 --fp8-format hybrid --fp8-recipe tensorwise --use-distributed-optimizer "
        "--overlap-grad-reduce --overlap-param-gather --swiglu --normalization RMSNorm --position-embedding-type rope "
        "--untie-embeddings-and-output-weights --disable-bias-linear --vocab-size 256 --make-vocab-size-divisible-by 16 "
        "--tensor-model-parallel-size 2 --sequence-parallel --tokenizer-type NullTokenizer --hidden-dropout 0 --attention-dropout 0 ";
    const TempFile stored("stored.json"), cast("cast.json");
    for (const auto& [plan, more] : {std::pair(&stored, "--fp8-param-gather"), std::pair(&cast, "")}) {
        const TempFile arguments("arguments.txt", flags + more);
        const Said said = say("check --megatron-args " + arguments.path() + " --world 4 --engine mgplan --save-plan " + plan->path());
        EXPECT_EQ(said.code, kDone) << said.err;
    }
    const auto run = [](const TempFile& plan, const std::string& options) {
        const Said said = say("run " + plan.path() + " --steps 3 --format json" + options);
        EXPECT_EQ(said.code, kDone) << said.err;
        return nlohmann::json::parse(said.out);
    };
    const auto expected = run(cast, "");
    for (const std::string options : {"", " --cuda-graphs layer", " --cuda-graphs full_iteration", " --memory arena"}) {
        const auto said = run(stored, options);
        EXPECT_TRUE(said["as_predicted"]) << options;
        EXPECT_EQ(said["steps"][0]["loss"], expected["steps"][0]["loss"]) << options;
        for (std::size_t step = 1; step < 3; ++step)
            EXPECT_NEAR(said["steps"][step]["loss"].get<double>() / expected["steps"][step]["loss"].get<double>(), 1, 1e-4) << options;
    }
}

TEST(RunCommand, PrintsTablesAndCsv) {
    const PlanFile plan("two.json", "--world 2 --tp 2 --global-batch 2");
    const Said table = say("run " + plan.path() + " --steps 2");
    ASSERT_EQ(table.code, kDone) << table.err;
    EXPECT_THAT(table.out, AllOf(HasSubstr("measured"), HasSubstr("predicted"), HasSubstr("all_reduce"), HasSubstr("matmul"),
                                 HasSubstr("Every byte held and sent is as predicted.")));
    for (const auto& line : split(table.out, '\n')) EXPECT_LE(line.size(), 100U) << line;
    const Said csv = say("run " + plan.path() + " --steps 2 --format csv");
    ASSERT_EQ(csv.code, kDone) << csv.err;
    EXPECT_THAT(csv.out, AllOf(HasSubstr("kind,index,name,measured,predicted,difference\r\n"), HasSubstr("step,2,loss,"),
                               HasSubstr("memory,1,high_water.activations,"), HasSubstr("collective,0,tp all_reduce count,")));
}

TEST(RunCommand, ReadsAnIndexedDatasetTheSameUnderEveryLayout) {
    TempFile data("indexed", "x"), bin("indexed.bin", "x"), idx("indexed.idx", "x");
    tests::IndexedFiles<std::uint16_t> files{8, {}, {}};
    for (std::uint16_t i = 0; i < 60; ++i) {
        auto& sequence = files.sequences.emplace_back();
        for (std::uint16_t k = 0; k < 40; ++k) sequence.push_back(static_cast<std::uint16_t>((7 * i + 3 * k * k) % 500));
    }
    const std::string prefix = bin.path().substr(0, bin.path().size() - 4);
    files.write(prefix);
    std::vector<double> losses;
    for (const char* layout : {"--world 1", "--world 4 --tp 2 --pp 2", "--world 4 --tp 1 --pp 1 --cp 2"}) {
        const PlanFile plan("indexed.json", std::string(layout) + " --precision fp32 --global-batch 4");
        const Said said = say("run " + plan.path() + " --steps 3 --format json --data " + prefix + ".bin");
        ASSERT_EQ(said.code, kDone) << said.err;
        const auto json = nlohmann::json::parse(said.out);
        EXPECT_TRUE(json["as_predicted"]) << layout;
        EXPECT_THAT(json["data"].get<std::string>(), HasSubstr("2,400 tokens of uint16 in 60 sequences"));
        losses.push_back(json["steps"][2]["loss"]);
    }
    EXPECT_NEAR(losses[1] / losses[0], 1, 1e-5);
    EXPECT_NEAR(losses[2] / losses[0], 1, 1e-5);
}

TEST(RunCommand, SaysOnceWhyItCannotTrainOnAGpu) {
    const PlanFile plan("gpu.json", "--world 2 --global-batch 4");
    ASSERT_EQ(setenv("MGPLAN_CUDA_MODULE", "/nowhere/libmgplan_cuda.so", 1), 0);
    const Said said = say("run " + plan.path() + " --device cuda --steps 1");
    ASSERT_EQ(unsetenv("MGPLAN_CUDA_MODULE"), 0);
    EXPECT_EQ(said.code, kBadInput);
    EXPECT_EQ(said.out, "");
    EXPECT_THAT(said.err, AllOf(HasSubstr("mgplan: --device cuda: this build has no CUDA module (/nowhere/libmgplan_cuda.so is not there)"),
                                HasSubstr("or use the CPU (--device cpu)\n")));
    EXPECT_EQ(std::count(said.err.begin(), said.err.end(), '\n'), 1) << said.err;
}

TEST(RunCommand, RefusesBadInputWithEveryProblem) {
    const PlanFile plan("refused.json", "--world 2 --global-batch 4");
    const auto run = [&](const std::string& options) { return split("run " + plan.path() + " " + options, ' '); };
    expect_refused("run", {"mgplan: run needs a PLAN"});
    expect_refused("run no-such-plan.json", {"no-such-plan.json"});
    expect_refused(run("--resume"), {"--checkpoint-every, --checkpoint-keep and --resume need a folder; add --checkpoint DIR"});
    expect_refused(run("--checkpoint-every 2"), {"add --checkpoint DIR"});
    expect_refused(run("--checkpoint /nowhere --rank 0"), {"--checkpoint and --rank exclude each other"});
    expect_refused(run("--checkpoint /proc/no/folder"), {"checkpoint folder /proc/no/folder cannot be made"});
    expect_refused(run("--checkpoint " + plan.path()), {plan.path()});
    expect_refused(run("--steps 0"), {"--steps"});
    expect_refused(run("--lr nan --clip-grad -1"), {"--lr = 'nan'", "--clip-grad = '-1'"});
    expect_refused(run("--lr 0 --min-lr 1"), {"--lr = 0 trains nothing", "--min-lr = 1 is above"});
    expect_refused(run("--steps 5 --lr-warmup-steps 5 --lr-decay-style cosine"), {"--lr-warmup-steps = 5"});
    expect_refused(run("--rank 2"), {"--rank = 2 is outside the plan's 2 ranks"});
    expect_refused(run("--rank 1 --ranks-in-process"), {"exclude each other"});
    expect_refused(run("--check-for-nan-in-loss-and-grad --no-check-for-nan-in-loss-and-grad"), {"exclude each other"});
    expect_refused(run("--data no-such-file"), {"data file no-such-file cannot be opened"});
    const TempFile short_text("short.txt", "too short");
    expect_refused(run("--data " + short_text.path()), {"9 tokens are fewer than one step needs, 4 sequences of 64 tokens"});
    TempFile bin("ids.bin", "x"), idx("ids.idx", "x");
    tests::IndexedFiles<std::int32_t>{4, {std::vector<std::int32_t>(1000, 512)}, {}}.write(bin.path().substr(0, bin.path().size() - 4));
    expect_refused(run("--data " + bin.path()), {"is 512, outside the vocabulary of 512"});
}

TEST(RunCommand, RefusesWhatItCannotTrain) {
    const TempFile plan("dropping.json");
    const TempFile model(
        "dropping_model.json",
        R"({"layers": 2, "hidden": 32, "ffn": 48, "heads": 4, "vocab": 256, "max_positions": 64, "attention_dropout": 0.1})");
    ASSERT_EQ(say("--world 1 --model " + model.path() + " --save-plan " + plan.path()).code, kDone);
    expect_refused("run " + plan.path(), {"cannot be trained by this version", "dropout inside attention"});
}

TEST(RunCommand, TrainsWithTheOptimizerOfThePlan) {
    std::vector<double> second_losses;
    for (const std::string optimizer : {"adam", "sgd", "lion", "muon"}) {
        const PlanFile plan(optimizer + ".json", "--world 2 --tp 1 --pp 1 --cp 1 --global-batch 4 --optimizer " + optimizer);
        const Said said = say("run " + plan.path() + " --steps 2 --format json");
        ASSERT_EQ(said.code, kDone) << said.err;
        const auto json = nlohmann::json::parse(said.out);
        EXPECT_EQ(json["as_predicted"], true) << optimizer;
        for (const double other : second_losses) EXPECT_NE(json["steps"][1]["loss"], other) << optimizer;
        second_losses.push_back(json["steps"][1]["loss"]);
        if (optimizer == "muon") {
            const Said other = say("run " + plan.path() + " --steps 2 --format json --muon-momentum 0.5 --muon-nesterov");
            EXPECT_NE(nlohmann::json::parse(other.out)["steps"][1]["loss"], json["steps"][1]["loss"]);
            expect_refused("run " + plan.path() + " --sgd-momentum 0.5", {"options --sgd-... of sgd", "optimizer is muon", "drop them"});
        } else {
            expect_refused("run " + plan.path() + " --muon-tp-mode blockwise", {"options --muon-... of muon", "optimizer is " + optimizer});
        }
    }
    const PlanFile ademamix("ademamix.json", "--world 1 --optimizer ademamix");
    expect_refused("run " + ademamix.path(), {"engine mgplan does not train", "AdEMAMix (use adam, sgd, lion or muon)"});
}

TEST(RunCommand, StopsAtALossThatIsNoNumber) {
    const PlanFile plan("nan.json", "--world 2 --global-batch 4");
    const Said stopped = say("run " + plan.path() + " --steps 4 --lr 1e30");
    EXPECT_EQ(stopped.code, kRunFailed);
    EXPECT_THAT(stopped.out, AllOf(HasSubstr("left out: not finite"), HasSubstr("Every byte held and sent is as predicted.")));
    EXPECT_THAT(stopped.err, AllOf(HasSubstr("mgplan: step 2, rank "), HasSubstr("the gradient of "), HasSubstr(" is NaN; lower --lr")));
    const Said skipped = say("run " + plan.path() + " --steps 4 --lr 1e30 --no-check-for-nan-in-loss-and-grad --format json");
    EXPECT_EQ(skipped.code, kDone);
    EXPECT_THAT(skipped.err, HasSubstr("mgplan: step 2 of 4 left out: "));
    EXPECT_THAT(skipped.err, Not(HasSubstr("-nan")));
    const auto json = nlohmann::json::parse(skipped.out);
    EXPECT_TRUE(json["steps"][1]["skipped"]);
    EXPECT_TRUE(json["as_predicted"]);
}

TEST(RunCommand, AnOutputThatCannotBeWrittenIsFoundBeforeTheFirstStep) {
    const PlanFile plan("output.json", "--world 2 --global-batch 4");
    const Said said = say("run " + plan.path() + " --steps 2 --output /no/such/folder/out");
    EXPECT_EQ(said.code, kBadInput);
    EXPECT_THAT(said.err, AllOf(HasSubstr("--output = /no/such/folder/out cannot be written"), Not(HasSubstr("step 1"))));
    const TempFile kept("kept.json", "an older report");
    EXPECT_EQ(say("run " + plan.path() + " --data no-such-file --output " + kept.path()).code, kBadInput);
    EXPECT_EQ(kept.text(), "an older report");
}

TEST(RunCommand, NamesChoicesOfThePlanThatItDoesNotUse) {
    const PlanFile plan("unused.json", "--world 4 --tp 2 --pp 2 --cp 1 --overlap tp");
    const Said said = say("run " + plan.path() + " --steps 1");
    EXPECT_EQ(said.code, kDone) << said.err;
    EXPECT_THAT(said.err, HasSubstr("mgplan: run does not use overlap_tp: results do not depend on it"));
    const PlanFile plain("plain.json", "--world 4 --pp 2 --global-batch 4");
    EXPECT_THAT(say("run " + plain.path() + " --steps 1").err, Not(HasSubstr("does not use")));
}

TEST(RunCommand, ReplacesWhatMegatronLmAloneHas) {
    const PlanFile plan("chosen.json", "--world 2 --ep 2 --etp 1 --dispatcher hybridep --search wide", "tiny-moe");
    const Said said = say("run " + plan.path() + " --steps 1");
    ASSERT_EQ(said.code, kDone) << said.err;
    EXPECT_THAT(said.err, HasSubstr("mgplan: run exchanges tokens by alltoall in place of the plan's hybridep\n"));
    EXPECT_THAT(said.out, HasSubstr("Every byte held and sent is as predicted."));
}

TEST(RunCommand, PredictsForItsOwnEngineWhateverThePlanIsFor) {
    const PlanFile usual("usual.json", "--world 2 --pp 2 --global-batch 4");
    auto json = nlohmann::ordered_json::parse(std::ifstream(usual.path()));
    ASSERT_EQ(json["layout"]["engine"], "megatron");
    json["layout"]["engine"] = "mgplan";
    const TempFile own("own.json", json.dump());
    const Said of_usual = say("run " + usual.path() + " --steps 1 --format json"),
               of_own = say("run " + own.path() + " --steps 1 --format json");
    ASSERT_EQ(of_usual.code, kDone) << of_usual.err;
    EXPECT_THAT(of_usual.err, Not(HasSubstr("does not use")));
    const auto a = nlohmann::json::parse(of_usual.out), b = nlohmann::json::parse(of_own.out);
    EXPECT_EQ(a["as_predicted"], true);
    for (std::size_t rank = 0; rank < 2; ++rank) EXPECT_EQ(a["ranks"][rank]["predicted"], b["ranks"][rank]["predicted"]);
}

TEST(RunCommand, RefusesWhatItsOwnEngineCannotHold) {
    const PlanFile plan("whole.json", "--world 2 --pp 2 --global-batch 4");
    auto json = nlohmann::ordered_json::parse(std::ifstream(plan.path()));
    json["cluster"]["memory_bytes"] = std::int64_t{1} << 20;
    const TempFile small("small.json", json.dump());
    for (const std::string command : {"run ", "verify "})
        expect_refused(command + small.path() + " --steps 1", {"engine = megatron of the plan", "mgplan's own engine", " on rank ",
                                                               "1.0 MiB of a GPU of dgx-h100", "use a plan of mgplan --engine mgplan"});
}

TEST(RunCommand, ReportsTheAuxiliaryLossOfMixturesThatTrainWithOne) {
    auto config = nlohmann::json::parse(say("models show tiny-moe --format json").out);
    config["moe"]["auxiliary_loss"] = 0.01;
    const TempFile model("auxiliary.json", config.dump());
    const TempFile plan("auxiliary_plan.json");
    ASSERT_EQ(say("--world 2 --global-batch 2 --model " + model.path() + " --save-plan " + plan.path()).code, kDone);
    const Said json = say("run " + plan.path() + " --steps 2 --format json");
    ASSERT_EQ(json.code, kDone) << json.err;
    const auto report = nlohmann::json::parse(json.out);
    ASSERT_EQ(report["steps"].size(), 2U);
    for (const auto& step : report["steps"]) EXPECT_NEAR(step["auxiliary_loss"], 1, 0.5);
    EXPECT_THAT(say("run " + plan.path() + " --steps 1").out, HasSubstr("auxiliary loss"));
    EXPECT_THAT(say("run " + plan.path() + " --steps 1 --format csv").out, HasSubstr("step,1,auxiliary_loss,"));
    const PlanFile without("no_auxiliary.json", "--world 1 --global-batch 2");
    EXPECT_THAT(say("run " + without.path() + " --steps 1 --format json").out, Not(HasSubstr("auxiliary_loss")));
}

TEST(RunCommand, TheSeedAndItsKindDecideTheFirstLoss) {
    const PlanFile plan("seeds.json", "--world 2 --tp 2 --global-batch 2 --precision fp32");
    const auto first_loss = [&](const std::string& options) {
        const Said said = say("run " + plan.path() + " --steps 1 --format json --data " + kText + options);
        EXPECT_EQ(said.code, kDone) << said.err;
        return nlohmann::json::parse(said.out)["steps"][0]["loss"].get<double>();
    };
    const double loss = first_loss("");
    EXPECT_EQ(first_loss(" --seed 1234 --deterministic"), loss);
    EXPECT_NE(first_loss(" --seed 5"), loss);
    EXPECT_NE(first_loss(" --per-rank-seeds"), loss);
}

TEST(RunCommand, AnInterruptStopsBehindTheStepAndStillReports) {
    const PlanFile plan("interrupt.json", "--world 2 --global-batch 4");
    const std::string& path = plan.path();
    ::testing::internal::CaptureStderr();  // what the signal's handler writes passes all streams by
    std::thread user([] {
        std::this_thread::sleep_for(std::chrono::seconds(2));
        std::raise(SIGINT);
    });
    const Said said = say("run " + path + " --steps 1000000 --format json --log-interval 1000000");
    user.join();
    EXPECT_EQ(said.code, kRunFailed);
    EXPECT_THAT(said.err, HasSubstr("mgplan: interrupted: stopped after step "));
    EXPECT_THAT(::testing::internal::GetCapturedStderr(),
                HasSubstr("mgplan: interrupted; stops after this step, Ctrl-C again ends at once\n"));
    const auto json = nlohmann::json::parse(said.out);
    EXPECT_TRUE(json["interrupted"]);
    EXPECT_FALSE(json["steps"].empty());
}

TEST(RunCommand, RunsOneRankOfALargePlanAloneAndSaysThatItsLossesMeanNothing) {
    const PlanFile plan("alone.json", "--world 512 --global-batch 512 --tp 2 --pp 4");
    const Said table = say("run " + plan.path() + " --rank 200 --steps 1");
    ASSERT_EQ(table.code, kDone) << table.err;
    EXPECT_THAT(table.out,
                AllOf(HasSubstr("rank 200 of 512 alone, its partners emulated"), HasSubstr("Losses and gradient norms mean nothing"),
                      HasSubstr("Every byte held and sent is as predicted.")));
    EXPECT_THAT(table.err, Not(HasSubstr("loss")));
    const auto json = nlohmann::json::parse(say("run " + plan.path() + " --rank 511 --steps 1 --format json").out);
    EXPECT_EQ(json["losses_mean_something"], false);
    EXPECT_EQ(json["as_predicted"], true);
    ASSERT_EQ(json["ranks"].size(), 1U);
    EXPECT_EQ(json["ranks"][0]["rank"], 511);
}

TEST(RunCommand, RefusesAWorldThatTheLauncherDidNotStart) {
    const PlanFile plan("world.json", "--world 2 --global-batch 4");
    ::setenv("OMPI_COMM_WORLD_RANK", "0", 1);
    ::setenv("OMPI_COMM_WORLD_SIZE", "4", 1);
    expect_refused("run " + plan.path(), {"the plan is for 2 ranks, and Open MPI started 4; start 2 (mpirun -n 2"});
    expect_refused("run " + plan.path() + " --ranks-in-process",
                   {"--ranks-in-process runs all ranks in one process, and Open MPI started 4"});
    expect_refused("run " + plan.path() + " --rank 1", {"--rank runs one rank alone, in one process, and Open MPI started 4"});
    ::unsetenv("OMPI_COMM_WORLD_RANK");
    ::unsetenv("OMPI_COMM_WORLD_SIZE");
}

}  // namespace
}  // namespace mgplan::cli::testing::run_command_test
