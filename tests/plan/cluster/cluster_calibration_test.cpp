// The calibration part of a cluster file: what is written is read again, and what is wrong is said.
#include "plan/cluster/cluster_calibration.hpp"

#include <fstream>
#include <functional>
#include <limits>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "plan/json/cluster_json.hpp"
#include "plan/text/errors.hpp"
#include "plan/text/json_reader.hpp"

namespace mgplan::cluster_calibration_test {
namespace {

using Json = nlohmann::ordered_json;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

ClusterCalibration example() {
    ClusterCalibration calibration;
    calibration.device = "cpu";
    calibration.hardware = "a processor";
    calibration.date = "2026-01-02";
    calibration.versions = {{"mgplan", "1"}};
    calibration.transport = "threads of one process";
    calibration.complete = true;
    calibration.products = {{64, 32, 16, false, true, false, Dtype::bf16, {1e-3, 0.1, 7}},
                            {32, 16, 64, true, false, true, Dtype::fp32, {2e-3, 0, 3}}};
    calibration.grouped_products = {{8, 64, 32, 16, true, false, Dtype::bf16, {4e-3, 0.1, 7}},
                                    {8, 32, 16, 64, false, true, Dtype::fp32, {5e-3, 0, 3}}};
    calibration.graphs = {{64, 8, 33'554'432, 0.01, 5}, {16, 32, 0, 0, 5}};
    calibration.attention = {{128, 2, 8, 2, 64, 32, true, Dtype::bf16, 1e6, {3e-3, 0.5, 9}}};
    calibration.kernels = {{"add fp32", 4096, {1e-6, 0, 5}}};
    calibration.copies = {{"host_to_device", 65536, {1e-5, 0, 5}}};
    calibration.collectives = {{"tp", "all_reduce", 4, 1 << 20, {1e-3, 0.2, 7}}, {"dp-cp", "send_receive", 2, 4096, {1e-5, 0.2, 7}, 2}};
    calibration.launch = {5e-6, 0.01, 30};
    calibration.parameters = {{"gemm_efficiency", {0.7, "fitted"}}, {"multiprocessors", {132, "counted"}}};
    calibration.refits = {{"job.log", 10, 1.5, 1.4, 0.9, 1}};
    return calibration;
}

std::string problem_of(const std::function<void(Json&)>& spoil) {
    Json json = calibration_to_json(example());
    spoil(json);
    try {
        static_cast<void>(calibration_from_json(json, "file"));
    } catch (const ConfigError& error) {
        return error.what();
    }
    return "";
}

TEST(ClusterCalibration, IsReadAsItWasWritten) {
    const Json json = calibration_to_json(example());
    EXPECT_EQ(calibration_from_json(json, "file"), example());
    EXPECT_EQ(calibration_from_json(parse_json(json.dump(), "text"), "text"), example());
    // A cluster keeps it, and a plan keeps its cluster.
    ClusterSpec cluster = load_cluster("dgx-h200");
    EXPECT_FALSE(cluster_to_json(cluster).contains("calibration"));
    cluster.calibration = example();
    EXPECT_EQ(cluster_from_json(cluster_to_json(cluster), "cluster"), cluster);
}

TEST(ClusterCalibration, CountsBandwidthsAsNcclTestsDo) {
    const CollectiveTime reduce{"world", "all_reduce", 4, 1000, {0.5, 0, 1}};
    EXPECT_DOUBLE_EQ(reduce.algorithm_bandwidth(), 2000);
    EXPECT_DOUBLE_EQ(reduce.bus_bandwidth(), 3000);
    EXPECT_DOUBLE_EQ((CollectiveTime{"world", "all_gather", 4, 1000, {0.5, 0, 1}}.bus_bandwidth()), 1500);
    EXPECT_DOUBLE_EQ((CollectiveTime{"world", "all_to_all", 4, 1000, {0.5, 0, 1}}.bus_bandwidth()), 1500);
    EXPECT_DOUBLE_EQ((CollectiveTime{"world", "send_receive", 4, 1000, {0.5, 0, 1}}.bus_bandwidth()), 2000);
    EXPECT_THAT(problem_of([](Json& json) { json["collectives"][0]["busbw"] = 5.0; }), HasSubstr("do not follow from bytes"));
}

TEST(ClusterCalibration, RefusesMissingZeroNegativeAndUndefinedEntries) {
    for (const char* list : {"products", "grouped_products", "attention", "kernels", "copies", "collectives"}) {
        const auto said = [&](const Json& value) { return problem_of([&](Json& json) { json[list][0]["seconds"] = value; }); };
        const std::string where = std::string("file: ") + list + "[0]";
        EXPECT_THAT(said(0), HasSubstr(where + ": seconds = 0 is out of range")) << list;
        EXPECT_THAT(said(-1e-3), HasSubstr(where + ": seconds = -0.001 is out of range")) << list;
        EXPECT_THAT(said(std::numeric_limits<double>::quiet_NaN()), HasSubstr(where)) << list;
        EXPECT_THAT(said(std::numeric_limits<double>::infinity()), HasSubstr(where)) << list;
        EXPECT_THAT(said(nullptr), HasSubstr(where + ": field 'seconds' is missing")) << list;
        EXPECT_THAT(said("fast"), HasSubstr(where)) << list;
        // Files of before these were measured are read as they are.
        const std::string without =
            std::string_view(list) == "grouped_products" ? "" : std::string("file: field '") + list + "' is missing";
        EXPECT_THAT(problem_of([&](Json& json) { json.erase(list); }), HasSubstr(without));
        EXPECT_THAT(problem_of([&](Json& json) { json[list] = 5; }), HasSubstr(std::string(list) + " is not a list"));
        EXPECT_THAT(problem_of([&](Json& json) { json[list][0] = 5; }), HasSubstr(where));
        EXPECT_THAT(problem_of([&](Json& json) { json[list][0]["second"] = 5; }), HasSubstr("unknown field 'second'"));
    }
    EXPECT_EQ(problem_of([](Json& json) {
                  json.erase("grouped_products");
                  json.erase("graphs");
              }),
              "");
    EXPECT_THAT(problem_of([](Json& json) { json["graphs"][0]["bytes"] = -1; }), HasSubstr("graphs[0]: bytes = -1 is out of range"));
    EXPECT_THAT(problem_of([](Json& json) { json["graphs"][0]["kernels"] = 0; }), HasSubstr("graphs[0]: kernels = 0 is out of range"));
    EXPECT_THAT(problem_of([](Json& json) { json["collectives"][0]["nodes"] = 0; }), HasSubstr("nodes = 0 is out of range"));
    EXPECT_THAT(problem_of([](Json& json) { json["products"][1]["m"] = 0; }), HasSubstr("products[1]: m = 0 is out of range"));
    EXPECT_THAT(problem_of([](Json& json) { json["products"][0]["dtype"] = "fp7"; }), HasSubstr("dtype = 'fp7' is not known"));
    EXPECT_THAT(problem_of([](Json& json) { json["collectives"][0]["op"] = "all"; }), HasSubstr("op = 'all' is not known"));
    EXPECT_THAT(problem_of([](Json& json) { json["copies"][0]["way"] = "up"; }), HasSubstr("way = 'up' is not known"));
}

TEST(ClusterCalibration, RefusesParametersThatNoDeviceHas) {
    const auto said = [](const char* name, const Json& value) {
        return problem_of([&](Json& json) { json["parameters"][name] = {{"value", value}, {"source", "somebody"}}; });
    };
    EXPECT_THAT(said("gemm_efficiency", 0), HasSubstr("parameters.gemm_efficiency: value = 0 is out of range"));
    EXPECT_THAT(said("gemm_efficiency", -0.5), HasSubstr("out of range"));
    EXPECT_THAT(said("gemm_efficiency", std::numeric_limits<double>::quiet_NaN()), HasSubstr("gemm_efficiency"));
    EXPECT_THAT(said("multiprocessors", 1.5), HasSubstr("is not a whole number"));
    EXPECT_THAT(said("gemm_eficiency", 0.5), AllOf(HasSubstr("unknown field 'gemm_eficiency'"), HasSubstr("gemm_efficiency")));
    EXPECT_THAT(problem_of([](Json& json) { json["parameters"]["gemm_efficiency"] = nullptr; }), HasSubstr("gemm_efficiency is null"));
    EXPECT_THAT(problem_of([](Json& json) { json["parameters"]["gemm_efficiency"] = 0.5; }), HasSubstr("must be an object"));
    EXPECT_THAT(problem_of([](Json& json) { json.erase("parameters"); }), HasSubstr("field 'parameters' is missing"));
    EXPECT_THAT(problem_of([](Json& json) {
                    json["parameters"] = Json::object();
                    json.erase("refits");
                }),
                HasSubstr("parameters is empty though the calibration is complete"));
    EXPECT_THAT(problem_of([](Json& json) { json["version"] = 2; }), HasSubstr("version = 2 is not 1"));
    EXPECT_THAT(problem_of([](Json& json) { json["device"] = "tpu"; }), HasSubstr("device = 'tpu' is not known"));
}

TEST(ClusterCalibration, ComplainsOfFewEntriesOutOfMany) {
    const std::string said = problem_of([](Json& json) {
        json["kernels"][0]["seconds"] = 0;
        for (int i = 0; i < 1000; ++i) json["kernels"].push_back(json["kernels"][0]);
    });
    EXPECT_THAT(said, HasSubstr("kernels[2]"));
    EXPECT_THAT(said, Not(HasSubstr("kernels[3]")));
}

TEST(ClusterCalibration, IsRefusedAsAClusterWhileIncomplete) {
    ClusterSpec cluster = load_cluster("dgx-h200");
    cluster.calibration = example();
    cluster.calibration->complete = false;
    const std::string path = ::testing::TempDir() + "mgplan_incomplete_cluster.json";
    std::ofstream(path) << cluster_to_json(cluster).dump();
    try {
        static_cast<void>(load_cluster(path));
        FAIL() << "an incomplete calibration was taken";
    } catch (const ConfigError& error) {
        EXPECT_THAT(error.what(), HasSubstr("its calibration is not complete; go on with mgplan calibrate --resume"));
    }
    std::ofstream(path) << [&] {
        Json json = cluster_to_json(cluster);
        json["calibration"] = nullptr;
        return json.dump();
    }();
    EXPECT_THROW(static_cast<void>(load_cluster(path)), ConfigError);
    std::remove(path.c_str());
}

}  // namespace
}  // namespace mgplan::cluster_calibration_test
