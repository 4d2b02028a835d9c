// `mgplan calibrate` and `mgplan verify` with tiny budgets: what they write, refuse, and say. Times are measured, never judged here.
#include <chrono>
#include <csignal>
#include <fstream>
#include <set>
#include <thread>
#include <tuple>

#include <fmt/core.h>
#include <nlohmann/json.hpp>

#include "plan/json/cluster_json.hpp"
#include "plan/text/json_reader.hpp"
#include "runtime/calibration/repeat.hpp"
#include "runtime/cpu/cpu_device.hpp"
#include "tests/cli/say.hpp"

namespace mgplan::cli::testing::calibrate_and_verify_test {
namespace {

using nlohmann::json;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

/// What a cluster file measures in well under a second.
const std::string kQuick = " --model tiny-llama --tp 1,2 --seq 32 --precision fp32 --seconds 0.00001 --most-bytes 2MiB";

json read(const TempFile& file) {
    return json::parse(file.text());
}

TEST(Repeat, TellsMedianAndQuartiles) {
    const Timing timing = runtime::timing_of({5, 1, 2, 3, 4});
    EXPECT_EQ(timing.seconds, 3);
    EXPECT_DOUBLE_EQ(timing.spread, (4.0 - 2.0) / 3);
    EXPECT_EQ(timing.repetitions, 5);
    EXPECT_EQ(runtime::calls_together(1), 1);
    EXPECT_EQ(runtime::calls_together(1e-3), 2);
    EXPECT_EQ(runtime::calls_together(0), 1000);
    runtime::CpuDevice device;
    std::int64_t calls = 0;
    const Timing slept = runtime::repeat(device, 0, [&](std::int64_t call) {
        EXPECT_EQ(call, calls++);
        std::this_thread::sleep_for(std::chrono::milliseconds(3));
    });
    EXPECT_EQ(slept.repetitions, 3);
    EXPECT_EQ(calls, 5);  // two that do not count
    EXPECT_GE(slept.seconds, 3e-3);
}

TEST(Calibrate, WritesAClusterFileThatPlansAndVerifies) {
    const TempFile cluster("calibrated.json"), plan("calibrated_plan.json");
    const Said said = say("calibrate" + kQuick + " --ranks 2 --output " + cluster.path());
    ASSERT_EQ(said.code, kDone) << said.err;
    EXPECT_THAT(said.err, AllOf(HasSubstr("100% "), HasSubstr("use it with --cluster " + cluster.path())));
    EXPECT_THAT(said.out, HasSubstr("gemm_efficiency"));
    const json calibration = read(cluster)["calibration"];
    EXPECT_EQ(calibration["device"], "cpu");
    EXPECT_EQ(calibration["complete"], true);
    EXPECT_EQ(calibration["transport"], "threads of one process");
    EXPECT_THAT(calibration["hardware"].get<std::string>(), HasSubstr("processor"));
    // tiny-llama's first MLP product, gate and value: hidden 64 to twice its ffn, whole and halved by tp 2; forward and, added, weights.
    EXPECT_GT(calibration["products"].size(), 12U);
    bool accumulates = false;
    for (const auto& each : calibration["products"]) {
        EXPECT_EQ(each["dtype"], "fp32");
        EXPECT_GE(each["repetitions"], 3);
        accumulates = accumulates || each["accumulate"] == true;
    }
    EXPECT_TRUE(accumulates);
    EXPECT_EQ(calibration["attention"].size(), 4U);  // two shards, forward and backward
    EXPECT_EQ(calibration["kernels"].size(), 12U);   // four ops of three sizes
    EXPECT_EQ(calibration["copies"].size(), 6U);
    EXPECT_EQ(calibration["collectives"].size(), 20U);  // five operations of four sizes
    for (const char* name : {"gemm_efficiency", "attention_forward", "memory_efficiency", "kernel_seconds", "collective_seconds"})
        EXPECT_TRUE(calibration["parameters"].contains(name)) << name;
    // It is read back as it was written, and predicts.
    const ClusterSpec spec = load_cluster(cluster.path());
    EXPECT_EQ(cluster_from_json(cluster_to_json(spec), "again"), spec);
    const Said planned = say("--world 1 --model tiny-llama --precision fp32 --seq 32 --global-batch 2 --cluster " + cluster.path() +
                             " --save-plan " + plan.path());
    ASSERT_EQ(planned.code, kDone) << planned.err;

    const Said verified = say("verify " + plan.path() + " --steps 3 --tolerance 1000 --format json");
    const json answer = json::parse(verified.out);
    EXPECT_EQ(answer["as_predicted"], true);
    EXPECT_EQ(answer["bytes"]["different"].size(), 0U);
    EXPECT_GT(answer["bytes"]["fields"], 10);
    EXPECT_EQ(answer["time"]["judged"], true) << answer["time"]["why_not_judged"];
    EXPECT_EQ(verified.code, answer["time"]["misses"] == true ? kMissedTolerance : kDone);
    // Parts add up to the iteration on both sides, ops to the parts.
    double predicted = 0, measured = 0;
    for (const auto& part : answer["time"]["parts"]) {
        predicted += part["predicted_seconds"].get<double>();
        measured += part["measured_seconds"].get<double>();
    }
    EXPECT_NEAR(predicted, answer["time"]["predicted_seconds"], 1e-9);
    EXPECT_NEAR(measured, answer["time"]["measured_seconds"], 1e-9);
    bool has_matmul = false;
    for (const auto& op : answer["time"]["ops"]) {
        EXPECT_EQ(op["count"], op["predicted_count"]) << op["op"];  // the trace runs what the rank runs
        has_matmul = has_matmul || op["op"] == "matmul";
    }
    EXPECT_TRUE(has_matmul);
    // No prediction is within 0 % of a measurement.
    const Said strict = say("verify " + plan.path() + " --steps 3 --tolerance 0");
    EXPECT_EQ(strict.code, kMissedTolerance);
    EXPECT_THAT(strict.out, AllOf(HasSubstr("every one as predicted"), HasSubstr("GEMMs"), HasSubstr("misses the tolerance"),
                                  HasSubstr("The prediction does not hold.")));
}

/// Attention of a CPU is one op, in fp32 too, where a GPU multiplies twice: the iteration is priced by the ops that ran.
TEST(Verify, OpsAndIterationOfACpuHaveTheSamePrices) {
    const TempFile cluster("cpu.json"), plan("cpu_plan.json");
    ASSERT_EQ(say("calibrate" + kQuick + " --ranks 1 --output " + cluster.path()).code, kDone);
    json slow = read(cluster);
    json& parameters = slow["calibration"]["parameters"];
    for (const char* each : {"attention_forward", "attention_backward"})
        parameters[each]["value"] = 0.01 * parameters["gemm_efficiency"]["value"].get<double>();
    std::ofstream(cluster.path()) << slow.dump();
    for (const std::string layout :
         {"--world 1 --tp 1", "--world 2 --tp 2 --pp 1", "--world 2 --tp 1 --pp 1", "--world 1 --recompute full"}) {
        ASSERT_EQ(say("plan --engine mgplan --model tiny-llama --precision fp32 --seq 32 --global-batch 4 " + layout + " --cluster " +
                      cluster.path() + " --save-plan " + plan.path())
                      .code,
                  kDone);
        const json time = json::parse(say("verify " + plan.path() + " --steps 2 --tolerance 1000 --format json").out)["time"];
        const double whole = time["predicted_seconds"];
        EXPECT_EQ(time["parts"].back()["part"], "between kernels: host, data, launches");
        EXPECT_NEAR(time["parts"].back()["predicted_seconds"].get<double>(), 0, 0.01 * whole) << layout << time["parts"];
    }
}

TEST(Verify, JudgesOneRankAloneWithoutCommunication) {
    const TempFile cluster("alone.json"), plan("alone_plan.json");
    ASSERT_EQ(say("calibrate" + kQuick + " --ranks 1 --output " + cluster.path()).code, kDone);
    ASSERT_EQ(say("--world 8 --model tiny-llama --seq 32 --global-batch 8 --precision fp32 --tp 2 --pp 2 --cluster " + cluster.path() +
                  " --save-plan " + plan.path())
                  .code,
              kDone);
    const Said said = say("verify " + plan.path() + " --rank 7 --steps 3 --tolerance 1000 --format json");
    const json answer = json::parse(said.out), &time = answer["time"];
    EXPECT_EQ(answer["as_predicted"], true) << said.err;
    EXPECT_EQ(time["judged"], true) << time["why_not_judged"];
    EXPECT_EQ(answer["run"]["ranks"].size(), 1U);
    EXPECT_EQ(answer["run"]["ranks"][0]["rank"], 7);
    // Ops of this rank's own trace add up to the prediction; collectives are timed, and part of neither side.
    double kernels = 0, communication = 0, parts_predicted = 0, parts_measured = 0;
    for (const auto& op : time["ops"]) {
        if (op["predicted_seconds"].is_null()) {
            communication += op["measured_seconds"].get<double>();
            continue;
        }
        EXPECT_EQ(op["count"], op["predicted_count"]) << op["op"];
        kernels += op["predicted_seconds"].get<double>();
    }
    for (const auto& part : time["parts"]) {
        EXPECT_THAT(part["part"].get<std::string>(), Not(HasSubstr("communication")));
        parts_predicted += part["predicted_seconds"].get<double>();
        parts_measured += part["measured_seconds"].get<double>();
    }
    EXPECT_NEAR(time["predicted_seconds"].get<double>(), kernels, 1e-12);
    EXPECT_NEAR(time["predicted_seconds"].get<double>(), parts_predicted, 1e-12);
    EXPECT_NEAR(time["measured_seconds"].get<double>(), parts_measured, 1e-9);
    EXPECT_GT(communication, 0);
    std::vector<double> steps;
    for (const auto& step : answer["run"]["steps"]) steps.push_back(step["seconds"].get<double>());
    ASSERT_EQ(steps.size(), 3U);
    EXPECT_NEAR(time["measured_seconds"].get<double>(), (steps[1] + steps[2]) / 2 - communication, 1e-9);
    EXPECT_THAT(say("verify " + plan.path() + " --rank 7 --steps 2 --tolerance 1000").out,
                HasSubstr("time of this rank without its partners, communication left out on both sides"));
}

TEST(Calibrate, GoesOnWhereItStopped) {
    const TempFile cluster("partial.json");
    ASSERT_EQ(say("calibrate" + kQuick + " --ranks 1 --output " + cluster.path()).code, kDone);
    json whole = read(cluster);
    // As an interrupted run leaves it.
    json part = whole;
    part["calibration"]["complete"] = false;
    part["calibration"]["parameters"] = json::object();
    part["calibration"]["products"].erase(part["calibration"]["products"].begin() + 2, part["calibration"]["products"].end());
    part["calibration"]["attention"].erase(part["calibration"]["attention"].begin());
    part["calibration"]["copies"].clear();
    std::ofstream(cluster.path()) << part.dump();
    expect_refused("plan --world 1 --model tiny-llama --cluster " + cluster.path(), {"its calibration is not complete", "--resume"});
    expect_refused("calibrate" + kQuick + " --ranks 1 --output " + cluster.path(), {"is there already", "--resume"});
    const Said said = say("calibrate" + kQuick + " --ranks 1 --resume --output " + cluster.path());
    ASSERT_EQ(said.code, kDone) << said.err;
    const json resumed = read(cluster);
    EXPECT_EQ(resumed["calibration"]["complete"], true);
    // What was there was kept to the last digit; the rest was measured.
    for (const char* list : {"kernels"}) EXPECT_EQ(resumed["calibration"][list], whole["calibration"][list]);
    EXPECT_EQ(resumed["calibration"]["launch"], whole["calibration"]["launch"]);
    EXPECT_EQ(resumed["calibration"]["products"][0], whole["calibration"]["products"][0]);
    for (const char* list : {"products", "attention", "copies"})
        EXPECT_EQ(resumed["calibration"][list].size(), whole["calibration"][list].size()) << list;
    EXPECT_THAT(said.err, Not(HasSubstr("launch of an op")));

    part["calibration"]["hardware"] = "another processor";
    std::ofstream(cluster.path()) << part.dump();
    expect_refused("calibrate" + kQuick + " --ranks 1 --resume --output " + cluster.path(),
                   "was measured with hardware = another processor");
    std::ofstream(cluster.path()) << "{\"name\": ";
    expect_refused("calibrate" + kQuick + " --ranks 1 --resume --output " + cluster.path(), "not valid JSON");
}

TEST(Calibrate, LeavesAReadableFileWhenItIsInterrupted) {
    const TempFile cluster("interrupted.json");
    // Long enough a budget that the signal comes on the way.
    std::thread sender([&] {
        for (int i = 0; i < 2000 && cluster.text().empty(); ++i) std::this_thread::sleep_for(std::chrono::milliseconds(5));
        std::raise(SIGINT);
    });
    const Said said =
        say("calibrate --model tiny-llama --tp 1 --seq 32 --precision fp32 --seconds 0.2 --most-bytes 2MiB --ranks 1 --output " +
            cluster.path());
    sender.join();
    EXPECT_EQ(said.code, kRunFailed);
    EXPECT_THAT(said.err, HasSubstr("--resume goes on with it"));
    const json calibration = read(cluster)["calibration"];
    EXPECT_EQ(calibration["complete"], false);
    EXPECT_TRUE(calibration.contains("launch"));
    EXPECT_NO_THROW(static_cast<void>(cluster_from_json(parse_json(cluster.text(), "partial"), "partial")));
}

TEST(Calibrate, MeasuresCollectivesInThePlansGroups) {
    const TempFile cluster("groups.json"), plan("groups_plan.json");
    ASSERT_EQ(say("--world 4 --model tiny-llama --precision fp32 --seq 32 --global-batch 4 --tp 2 --pp 2 --micro-batch 1 --save-plan " +
                  plan.path())
                  .code,
              kDone);
    const Said said =
        say("calibrate --plan " + plan.path() + " --precision fp32 --seconds 0.00001 --most-bytes 256KiB --output " + cluster.path());
    ASSERT_EQ(said.code, kDone) << said.err;
    std::set<std::string> groups;
    const json measured = read(cluster);
    for (const auto& each : measured["calibration"]["collectives"]) {
        groups.insert(each["group"].get<std::string>());
        EXPECT_EQ(each["ranks"], 2);
    }
    EXPECT_EQ(groups, (std::set<std::string>{"tp", "pp"}));
    expect_refused("calibrate --plan " + plan.path() + " --ranks 3 --output " + cluster.path() + "2",
                   {"--plan is for 4 ranks and 3 are here", "--ranks 1: none"});
}

TEST(Calibrate, MeasuresTheExpertsOfMixtures) {
    const TempFile cluster("experts.json");
    const Said said =
        say("calibrate --model tiny-moe --tp 1 --ep 1,4 --seq 64 --precision fp32 --seconds 0.005 --most-bytes 2MiB --ranks 1 --output " +
            cluster.path());
    ASSERT_EQ(said.code, kDone) << said.err;
    const json calibration = read(cluster)["calibration"];
    // 64 tokens choose 2 of 8 experts: 16 rows of each. Of 4 ranks' tokens the 2 experts of one get 64.
    std::set<std::tuple<int, int, int, int>> products;
    for (const auto& each : calibration["grouped_products"]) {
        EXPECT_EQ(each["dtype"], "fp32");
        EXPECT_GE(each["repetitions"], 3);
        if (each["accumulate"] == false)
            products.emplace(each["groups"].get<int>(), each["m"].get<int>(), each["n"].get<int>(), each["k"].get<int>());
    }
    // Into the experts (hidden 128) gate and value of 256, out of them 256; backward the other way; a quarter of the rows besides.
    std::set<std::tuple<int, int, int, int>> expected;
    for (const auto& [groups, rows] : {std::pair{8, 16}, {8, 4}, {2, 64}, {2, 16}}) {
        for (const auto& [n, k] : {std::pair{512, 128}, {128, 256}, {256, 128}, {128, 512}}) expected.insert({groups, rows, n, k});
    }
    EXPECT_EQ(products, expected);
    // Four forward and backward, two of weights, of each number of rows.
    for (const auto& [name, points] : {std::pair{"grouped_rows_half", 16}, {"grouped_weight_gradient", 8}}) {
        ASSERT_TRUE(calibration["parameters"].contains(name)) << name;
        EXPECT_THAT(calibration["parameters"][name]["source"].get<std::string>(),
                    HasSubstr(fmt::format("fitted to {} grouped products", points)))
            << name;
    }
    // A CPU has no memory of graphs to measure.
    EXPECT_EQ(calibration["graphs"].size(), 0U);
    EXPECT_NO_THROW(static_cast<void>(load_cluster(cluster.path())));
}

TEST(Calibrate, SaysWhatIsMissing) {
    expect_refused("calibrate", "--output is missing");
    expect_refused("calibrate --model nonsense --output /tmp/mgplan_never.json", "nonsense");
    expect_refused("calibrate --model tiny-llama --tp 7 --output /tmp/mgplan_never.json", "none of the shards can be computed");
    expect_refused("calibrate --model tiny-llama --output /nowhere/at/all.json", "cannot be written");
    expect_refused("calibrate --model tiny-llama --seconds 0 --output x.json", "--seconds");
}

TEST(Verify, ComparesBytesAndDoesNotJudgeAnotherMachinesTime) {
    const TempFile plan("uncalibrated.json");
    ASSERT_EQ(say("--world 2 --model tiny-llama --seq 32 --global-batch 2 --save-plan " + plan.path()).code, kDone);
    const Said said = say("verify " + plan.path() + " --steps 2 --tolerance 0.001");
    EXPECT_EQ(said.code, kDone) << said.err;  // bytes are equal, and the time says nothing
    EXPECT_THAT(said.out,
                AllOf(HasSubstr("every one as predicted"), HasSubstr("The time is not judged: dgx-h100 was not calibrated"),
                      HasSubstr("All bytes are as predicted; the time was not judged."), Not(HasSubstr("The prediction holds."))));
    EXPECT_THAT(said.err, HasSubstr("the time is not judged"));
    const Said csv = say("verify " + plan.path() + " --steps 2 --format csv");
    EXPECT_THAT(csv.out, AllOf(HasSubstr("byte,0,peak_bytes,"), HasSubstr("time,,iteration_seconds,"), HasSubstr("op,,matmul,")));
    expect_refused("verify", "mgplan verify needs a PLAN");
    expect_refused("verify " + plan.path() + " --world 2",
                   {"exclude each other", "--megatron-log is missing", "--megatron-args is missing"});
}

/// Predicted seconds of a step's ops named `op`.
double predicted_seconds(const json& answer, const std::string& op) {
    for (const auto& each : answer["time"]["ops"]) {
        if (each["op"] == op) return each["predicted_seconds"];
    }
    ADD_FAILURE() << "no " << op;
    return 0;
}

TEST(Verify, PricesCopiesToTheHostByItsLink) {
    const TempFile cluster("host_link.json"), plan("host_link_plan.json");
    ClusterSpec spec = load_cluster("dgx-h100");
    spec.host = {1e6, 1e-6};
    std::ofstream(cluster.path()) << cluster_to_json(spec).dump();
    ASSERT_EQ(say("--world 1 --model tiny-gpt --engine mgplan --seq 64 --global-batch 2 --precision fp32 --offload optimizer --save-plan " +
                  plan.path())
                  .code,
              kDone);
    for (const std::string ranks : {"", " --rank 0"}) {
        const Said said = say("verify " + plan.path() + ranks + " --steps 2 --cluster " + cluster.path() + " --format json");
        EXPECT_EQ(said.code, kDone) << said.err;
        const json answer = json::parse(said.out);
        // The moments, there and back.
        const double bytes = answer["run"]["ranks"][0]["predicted"]["host_bytes"];
        EXPECT_GT(bytes, 1e6);
        EXPECT_DOUBLE_EQ(predicted_seconds(answer, "copy_to_host"), bytes / 1e6);
        EXPECT_DOUBLE_EQ(predicted_seconds(answer, "copy_from_host"), bytes / 1e6);
        for (const auto& part : answer["time"]["parts"]) EXPECT_TRUE(part["predicted_seconds"].is_number()) << part;
    }
}

TEST(Verify, PricesProductsThatFp8LeavesIn16BitsByTheirOwnRate) {
    const TempFile cluster("slow_16_bits.json"), plan("fp8_plan.json");
    ClusterSpec spec = load_cluster("dgx-h100");
    spec.peak_flops[Precision::bf16] = 1e9;
    std::ofstream(cluster.path()) << cluster_to_json(spec).dump();
    ASSERT_EQ(say("--world 1 --model tiny-llama --engine mgplan --seq 64 --global-batch 2 --micro-batch 1 --precision fp8 --save-plan " +
                  plan.path())
                  .code,
              kDone);
    const json answer = json::parse(say("verify " + plan.path() + " --steps 2 --cluster " + cluster.path() + " --format json").out);
    const json model = json::parse(plan.text())["model"];
    // The head: forward and both gradients, of 2 sequences of 64 tokens.
    const double head = 3 * 2.0 * 128 * model["hidden"].get<double>() * model["vocab"].get<double>();
    EXPECT_GT(predicted_seconds(answer, "matmul"), head / 1e9);
}

std::string log_line(int iteration, double milliseconds) {
    return fmt::format(
        " [2026-01-02 03:04:05] iteration {:8d}/{:8d} | consumed samples: {:12d} | elapsed time per iteration (ms): {:.1f} | throughput "
        "per "
        "GPU (TFLOP/s/GPU): {:.1f} | learning rate: 1.000000E-04 | global batch size: {:5d} | lm loss: 1.034512E+01 |\n",
        iteration, 100, iteration * 64, milliseconds, 400.0, 64);
}

/// A job of Megatron-LM, and what it said.
const std::string kArguments =
    "--num-layers 32 --hidden-size 4096 --num-attention-heads 32 --group-query-attention --num-query-groups 8 --ffn-hidden-size 14336 "
    "--swiglu --normalization RMSNorm --position-embedding-type rope --untie-embeddings-and-output-weights --disable-bias-linear "
    "--seq-length 4096 --max-position-embeddings 8192 --vocab-size 128256 --bf16 --use-flash-attn --use-distributed-optimizer "
    "--tensor-model-parallel-size 2 --sequence-parallel --pipeline-model-parallel-size 2 --micro-batch-size 1 --global-batch-size 64\n";

TEST(Verify, ComparesALogOfMegatronAndRefitsTheCluster) {
    const TempFile args("job.args", kArguments), log("job.log"), refit("refit.json");
    const std::string words = "verify --megatron-args " + args.path() + " --world 16 --megatron-log " + log.path();
    const auto write_log = [&](double milliseconds, const std::string& memory = "") {
        std::ofstream file(log.path());
        file << "using world size: 16\n" << log_line(1, 50000) << memory;
        for (int i = 2; i < 10; ++i) file << log_line(i, milliseconds + i);
    };
    write_log(1000);
    const json first = json::parse(say(words + " --format json").out);
    const double predicted = first["time"]["predicted_seconds"];
    ASSERT_GT(predicted, 0);
    EXPECT_EQ(first["lines"], 8);
    EXPECT_NEAR(first["time"]["measured_seconds"].get<double>(), 1.0055, 1e-9);

    // A job as fast as predicted holds; one a quarter slower does not, and the refit meets it.
    write_log(predicted * 1000 - 5.5);
    EXPECT_EQ(say(words + " --tolerance 1").code, kDone);
    write_log(predicted * 1250 - 5.5);
    const Said slow = say(words + " --refit " + refit.path());
    EXPECT_EQ(slow.code, kMissedTolerance);
    EXPECT_THAT(slow.out, AllOf(HasSubstr("misses the tolerance"), HasSubstr("compute of the slowest stage"),
                                HasSubstr("waiting for kernel launches"), HasSubstr("refit: efficiencies"),
                                HasSubstr("The log has no report of memory.")));
    const json again = json::parse(say(words + " --format json --cluster " + refit.path()).out);
    EXPECT_NEAR(again["time"]["error"].get<double>(), 0, 0.002);
    EXPECT_EQ(again["time"]["misses"], false);
    const ClusterSpec refitted = load_cluster(refit.path());
    ASSERT_EQ(refitted.calibration->refits.size(), 1U);
    EXPECT_LT(refitted.calibration->refits[0].compute_factor, 1);
    EXPECT_EQ(refitted.calibration->refits[0].communication_factor, 1);
    // Ten times slower is no matter of efficiencies, which a refit says.
    write_log(predicted * 10000);
    const json bound = json::parse(say(words + " --format json --refit " + refit.path()).out);
    EXPECT_EQ(bound["refit"]["at_bound"], true);
    EXPECT_EQ(bound["refit"]["compute_factor"], 0.5);
    EXPECT_EQ(bound["refit"]["communication_factor"], 0.5);

    // Memory: judged by the same tolerance, each rank against its stage.
    write_log(
        predicted * 1000 - 5.5,
        "[Rank 0] (after 1 iterations) memory (MB) | allocated: 100.00 | max allocated: 200.00 | reserved: 300.00 | max reserved: 300.00\n"
        "[Rank 8] (after 1 iterations) memory (MB) | allocated: 100.00 | max allocated: 200.00 | reserved: 300.00 | max reserved: "
        "300.00\n");
    const Said memory = say(words + " --format json");
    EXPECT_EQ(memory.code, kMissedTolerance);
    const json ranks = json::parse(memory.out)["memory"];
    ASSERT_EQ(ranks.size(), 2U);
    EXPECT_EQ(ranks[1]["rank"], 8);
    EXPECT_EQ(ranks[1]["stage"], 1);
    EXPECT_EQ(ranks[1]["max_allocated_bytes"], 200 << 20);
    EXPECT_EQ(ranks[1]["misses"], true);
    EXPECT_GT(ranks[0]["predicted_framework_bytes"], std::int64_t{1} << 30);
}

TEST(Verify, RefusesLogsItCannotRead) {
    const TempFile args("bad_job.args", kArguments), log("bad_job.log", "no such lines here\n");
    const std::string words = "verify --megatron-args " + args.path() + " --world 16 --megatron-log ";
    expect_refused(words + log.path(), "no line has 'elapsed time per iteration (ms):'");
    expect_refused(words + "/nowhere.log", "/nowhere.log");
    std::ofstream(log.path()) << log_line(1, 5) << " iteration 2/ 5 | elapsed time per iteration (ms): nan |\n";
    expect_refused(words + log.path(), ":2: elapsed time per iteration (ms): 'nan' is not a number");
    std::ofstream(log.path())
        << log_line(1, 5) << log_line(2, 5)
        << "[Rank 99] (after 1 iterations) memory (MB) | allocated: 1 | max allocated: 2 | reserved: 3 | max reserved: 3\n";
    expect_refused(words + log.path(), {"names rank 99, and --world is 16"});
    expect_refused(words + log.path() + " --steps 5", "--steps cannot be combined with --megatron-log");
    expect_refused("verify --megatron-log " + log.path(), {"--megatron-args is missing", "--world is missing"});
}

}  // namespace
}  // namespace mgplan::cli::testing::calibrate_and_verify_test
