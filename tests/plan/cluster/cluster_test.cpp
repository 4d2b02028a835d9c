#include "plan/json/cluster_json.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <limits>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "plan/text/errors.hpp"
#include "plan/text/json_reader.hpp"

namespace mgplan::cluster_test {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using Json = nlohmann::ordered_json;

/// Problems of reading `text` as --cluster; a text that reads without one fails the test.
std::string problems_of(const std::string& text) {
    try {
        const ClusterSpec read = load_cluster(text);
        return "no problem, read " + read.name;
    } catch (const ConfigError& error) {
        return error.what();
    }
}

std::string problems_of_json(const Json& json) {
    try {
        const ClusterSpec read = cluster_from_json(json, "file.json");
        return "no problem, read " + read.name;
    } catch (const ConfigError& error) {
        return error.what();
    }
}

class TemporaryFile {
public:
    TemporaryFile(const std::string& name, const std::string& text)
        : path_(std::filesystem::temp_directory_path() / (std::to_string(getpid()) + "_" + name)) {
        std::ofstream(path_, std::ios::binary) << text;
    }
    ~TemporaryFile() { std::filesystem::remove(path_); }
    TemporaryFile(const TemporaryFile&) = delete;
    TemporaryFile& operator=(const TemporaryFile&) = delete;
    [[nodiscard]] std::string path() const { return path_.string(); }

private:
    std::filesystem::path path_;
};

TEST(ClusterPresets, AreTheNamedClustersAndThoseThatWereMeasured) {
    const auto all = cluster_preset_names();
    std::vector<std::string> specified;
    for (const ClusterSpec& cluster : cluster_presets()) {
        if (!cluster.calibration) specified.push_back(cluster.name);
    }
    EXPECT_TRUE(std::ranges::includes(all, specified));
    EXPECT_THAT(specified,
                ElementsAre("a100-pcie-80g", "dgx-a100-40g", "dgx-a100-80g", "dgx-b200", "dgx-b300", "dgx-h100", "dgx-h200", "dgx-h800",
                            "gb200-nvl72", "gb300-nvl72", "hgx-h20", "l40s", "mi250x", "mi300x", "mi325x", "mi350x", "mi355x"));
}

TEST(ClusterPresets, LoadUnderTheirNameAndReadBackIdentically) {
    for (const auto& name : cluster_preset_names()) {
        const ClusterSpec cluster = load_cluster(name);
        EXPECT_EQ(cluster.name, name);
        EXPECT_EQ(cluster_from_json(parse_json(cluster_to_json(cluster).dump(), name), name), cluster) << name;
    }
}

TEST(ClusterPresets, NameTheSourceOfEveryFigure) {
    for (const auto& name : cluster_preset_names()) {
        const ClusterSpec cluster = load_cluster(name);
        for (const char* field : {"memory_bytes", "peak_flops", "memory_bandwidth", "gpus_per_node", "nvlink_domain", "nvlink", "pcie",
                                  "network", "nics_per_node", "nvls", "compute_capability"}) {
            ASSERT_TRUE(cluster.sources.contains(field)) << name << " " << field;
            EXPECT_GT(cluster.sources.at(field).size(), 20U) << name << " " << field;
        }
    }
}

TEST(ClusterPresets, SayWhoseEfficienciesStandInForThoseNotMeasured) {
    for (const std::string name : {"l40s", "hgx-h20"})
        EXPECT_THAT(load_cluster(name).sources.at("efficiencies"), HasSubstr("not calibrated")) << name;
    for (const std::string name : {"mi250x", "mi300x", "mi325x", "mi350x", "mi355x"}) {
        const ClusterSpec amd = load_cluster(name);
        EXPECT_THAT(amd.sources.at("efficiencies"), HasSubstr("follow measured_products")) << name;
        EXPECT_GT(amd.sources.at("measured_products").size(), 20U) << name;
        for (const auto& [precision, rate] : amd.measured_products) EXPECT_LT(rate, 0.8 * amd.peak(precision)) << name;
    }
    for (const std::string name : {"mi300x", "mi325x", "mi350x", "mi355x"}) {
        const ClusterSpec amd = load_cluster(name);
        EXPECT_EQ(amd.compute_units, name.starts_with("mi30") || name.starts_with("mi32") ? 304 : 256);
        EXPECT_EQ(cluster_from_json(cluster_to_json(amd), "file"), amd);
    }
    EXPECT_FALSE(load_cluster("dgx-h100").sources.contains("efficiencies"));
    EXPECT_EQ(load_cluster("h20"), load_cluster("hgx-h20"));
    EXPECT_DOUBLE_EQ(load_cluster("mi300x").peak(Precision::bf16), 1307.4e12);
    EXPECT_EQ(load_cluster("mi250x").peak(Precision::fp8), 0.0);
    EXPECT_DOUBLE_EQ(load_cluster("mi355x").nvlink.bandwidth, 7 * 153.6e9 / 2);
}

TEST(Clusters, RefuseAProductAboveThePeak) {
    ClusterSpec cluster = load_cluster("mi300x");
    cluster.measured_products[Precision::bf16] = 2000e12;
    EXPECT_THROW(validate(cluster, "file"), ConfigError);
    cluster.measured_products = {{Precision::nvfp4, 1e12}};
    EXPECT_THROW(validate(cluster, "file"), ConfigError) << "a precision that the GPU lacks";
}

TEST(ClusterPresets, HoldTheFiguresOfTheDataSheets) {
    const ClusterSpec h100 = load_cluster("dgx-h100");
    EXPECT_DOUBLE_EQ(h100.peak(Precision::bf16), 989.4e12);
    EXPECT_DOUBLE_EQ(h100.peak(Precision::fp8), 1978.9e12);
    EXPECT_DOUBLE_EQ(h100.memory_bandwidth, 3350e9);
    EXPECT_DOUBLE_EQ(h100.nvlink.bandwidth, 450e9);
    EXPECT_DOUBLE_EQ(h100.network.bandwidth, 50e9);  // 400 Gb/s for each GPU
    EXPECT_TRUE(h100.nvls);
    EXPECT_EQ(h100.compute_capability, 90);

    const ClusterSpec a100 = load_cluster("dgx-a100-80g");
    EXPECT_DOUBLE_EQ(a100.peak(Precision::bf16), 312e12);
    EXPECT_EQ(a100.peak(Precision::fp8), 0.0);
    EXPECT_DOUBLE_EQ(a100.network.bandwidth, 25e9);
    EXPECT_FALSE(a100.nvls);

    const ClusterSpec gb200 = load_cluster("gb200-nvl72");
    EXPECT_EQ(gb200.gpus_per_node, 4);
    EXPECT_EQ(gb200.nvlink_domain, 72);
    EXPECT_DOUBLE_EQ(gb200.network.bandwidth, 50e9);
    EXPECT_DOUBLE_EQ(load_cluster("gb300-nvl72").network.bandwidth, 100e9);
    EXPECT_DOUBLE_EQ(load_cluster("dgx-b300").network.bandwidth, 100e9);

    EXPECT_EQ(load_cluster("a100-pcie-80g").nvlink_domain, 1);
    EXPECT_DOUBLE_EQ(load_cluster("dgx-h800").nvlink.bandwidth, 200e9);
    EXPECT_EQ(load_cluster("dgx-h800").peak_flops.at(Precision::bf16), h100.peak_flops.at(Precision::bf16));
}

TEST(ClusterPresets, AreFoundByTheirGpuWhereOneHasIt) {
    EXPECT_EQ(load_cluster("h100"), load_cluster("dgx-h100"));
    EXPECT_EQ(load_cluster("h800,gpus_per_node=4").name, "dgx-h800,gpus_per_node=4");
    EXPECT_EQ(load_cluster("gb300"), load_cluster("gb300-nvl72"));
    EXPECT_THAT(problems_of("a100"), AllOf(HasSubstr("'a100' may be several presets; use "), HasSubstr("dgx-a100-40g"),
                                           HasSubstr("a100-pcie-80g"), Not(HasSubstr("h100"))));
    EXPECT_THAT(problems_of("a1"), HasSubstr("unknown preset 'a1'"));
}

TEST(ClusterOverrides, OldNamesOfTwoKeysAreStillRead) {
    ClusterSpec old = load_cluster("dgx-h100,nvlink_gbps=225,node_network_gbps=800");
    const ClusterSpec now = load_cluster("dgx-h100,nvlink_gbytes_per_second=225,node_network_gbits_per_second=800");
    EXPECT_EQ(old.sources.at("nvlink"), "given with --cluster as nvlink_gbytes_per_second=225");
    EXPECT_EQ(old.sources.at("network"), "given with --cluster as node_network_gbits_per_second=800");
    old.name = now.name;
    EXPECT_EQ(old, now);
    EXPECT_THAT(renamed_cluster_keys("dgx-h100,nvlink_gbps=225,gpus_per_node=4,node_network_gbps=800"),
                ElementsAre("--cluster: nvlink_gbps is read as nvlink_gbytes_per_second=225",
                            "--cluster: node_network_gbps is read as node_network_gbits_per_second=800"));
    EXPECT_THAT(problems_of("dgx-h100,nvlink_gbps=2,nvlink_gbytes_per_second=2"), HasSubstr("is given twice"));
}

TEST(ClusterPresets, HaveLessUsableMemoryThanTheNominalCapacity) {
    const std::map<std::string, double> nominal_gb{
        {"a100-pcie-80g", 85.9}, {"dgx-a100-40g", 42.95}, {"dgx-a100-80g", 85.9}, {"dgx-b200", 192},    {"dgx-b300", 288},
        {"dgx-h100", 85.9},      {"dgx-h200", 151},       {"dgx-h800", 85.9},     {"gb200-nvl72", 200}, {"gb300-nvl72", 300},
        {"hgx-h20", 103.1},      {"l40s", 51.5},          {"mi250x", 68.72},      {"mi300x", 206.2},    {"mi325x", 274.9},
        {"mi350x", 309.3},       {"mi355x", 309.3}};
    for (const ClusterSpec& cluster : cluster_presets()) {
        if (cluster.calibration) continue;
        const double gb = static_cast<double>(cluster.memory_bytes) / 1e9;
        EXPECT_LT(gb, nominal_gb.at(cluster.name)) << cluster.name;
        EXPECT_GT(gb, 0.9 * nominal_gb.at(cluster.name)) << cluster.name;
    }
}

TEST(ClusterOverrides, NodeNetworkIsSharedByTheGpusOfTheNode) {
    const ClusterSpec cluster = load_cluster("dgx-a100-80g,node_network_gbits_per_second=800,gpus_per_node=4");
    EXPECT_EQ(cluster.gpus_per_node, 4);
    EXPECT_DOUBLE_EQ(cluster.network.bandwidth, 800e9 / 8 / 4);
    EXPECT_EQ(cluster.nics_per_node, 4);  // of 200 Gb/s each, as in the preset
    EXPECT_EQ(cluster.name, "dgx-a100-80g,node_network_gbits_per_second=800,gpus_per_node=4");
    EXPECT_THAT(cluster.sources.at("network"), HasSubstr("node_network_gbits_per_second=800"));
    ClusterSpec other_order = load_cluster("dgx-a100-80g,gpus_per_node=4,node_network_gbits_per_second=800");
    other_order.name = cluster.name;
    EXPECT_EQ(other_order, cluster);
}

TEST(ClusterOverrides, FewerGpusInANodeShareTheSameNetwork) {
    const ClusterSpec cluster = load_cluster("dgx-h100,gpus_per_node=4");
    EXPECT_DOUBLE_EQ(cluster.network.bandwidth, 100e9);
    EXPECT_EQ(cluster.nics_per_node, 8);
}

TEST(ClusterOverrides, NvlinkDomainFollowsTheNodeUnlessItSpansNodes) {
    EXPECT_EQ(load_cluster("dgx-h100,gpus_per_node=4").nvlink_domain, 4);
    EXPECT_EQ(load_cluster("dgx-h100,gpus_per_node=16").nvlink_domain, 16);
    EXPECT_EQ(load_cluster("gb200-nvl72,gpus_per_node=8").nvlink_domain, 72);
    EXPECT_EQ(load_cluster("a100-pcie-80g,gpus_per_node=4").nvlink_domain, 1);
    EXPECT_EQ(load_cluster("a100-pcie-80g,nvlink_domain=2").nvlink_domain, 2);
    EXPECT_EQ(load_cluster("dgx-h100,gpus_per_node=4,nvlink_domain=8").nvlink_domain, 8);
}

TEST(ClusterOverrides, NameTheKindOfNetwork) {
    EXPECT_EQ(load_cluster("dgx-h100").network_kind, NetworkKind::infiniband);
    const ClusterSpec cluster = load_cluster("dgx-h100,network=efa");
    EXPECT_EQ(cluster.network_kind, NetworkKind::efa);
    EXPECT_EQ(cluster.sources.at("network_kind"), "given with --cluster as network_kind=efa");
    EXPECT_EQ(cluster_from_json(cluster_to_json(cluster), "file").network_kind, NetworkKind::efa);
    EXPECT_THAT(problems_of("dgx-h100,network_kind=ethernet"),
                HasSubstr("network_kind = 'ethernet' is not known; use infiniband, roce, efa or slingshot"));
    auto json = cluster_to_json(cluster);
    json["network_kind"] = "tcp";
    EXPECT_THROW((void)cluster_from_json(json, "file"), ConfigError);
}

TEST(ClusterOverrides, ChangeMemoryAndNvlink) {
    const ClusterSpec cluster = load_cluster("dgx-h100,memory_gib=40.5,nvlink_gbytes_per_second=225");
    EXPECT_EQ(cluster.memory_bytes, 43486543872);  // 40.5 * 2^30
    EXPECT_DOUBLE_EQ(cluster.nvlink.bandwidth, 225e9);
    EXPECT_EQ(cluster.network, load_cluster("dgx-h100").network);
}

TEST(ClusterOverrides, ChangeTheRatesOfAGpu) {
    const ClusterSpec before = load_cluster("dgx-h100"), cluster = load_cluster("dgx-h100,bf16_tflops=800,memory_gbytes_per_second=4000");
    EXPECT_DOUBLE_EQ(cluster.peak(Precision::bf16), 800e12);
    EXPECT_DOUBLE_EQ(cluster.peak(Precision::fp16), 800e12) << "the same units";
    EXPECT_DOUBLE_EQ(cluster.peak(Precision::fp8), before.peak(Precision::fp8));
    EXPECT_DOUBLE_EQ(cluster.memory_bandwidth, 4e12);
    EXPECT_THAT(cluster.sources.at("peak_flops"), HasSubstr("bf16_tflops=800"));
    for (const auto& name : cluster_preset_names()) {
        const ClusterSpec preset = load_cluster(name);
        if (preset.measured_products.empty()) continue;
        const ClusterSpec half = load_cluster(fmt::format("{},bf16_tflops={}", name, preset.peak(Precision::bf16) / 2e12));
        EXPECT_DOUBLE_EQ(half.measured_products.at(Precision::bf16), preset.measured_products.at(Precision::bf16) / 2) << name;
    }
    EXPECT_THAT(problems_of("dgx-a100-80g,fp8_tflops=600"), HasSubstr("fp8_tflops = '600' changes a rate that dgx-a100-80g does not have"));
    EXPECT_THAT(problems_of("dgx-h100,bf16_tflops=0"), HasSubstr("bf16_tflops = '0' is out of range; use a number from"));
}

TEST(ClusterOverrides, GiveAHostsMemoryThatAPresetMayLeaveOut) {
    EXPECT_EQ(load_cluster("dgx-h100").host_memory_bytes, 2'000'000'000'000);
    EXPECT_EQ(load_cluster("gb200-nvl72").host_memory_bytes, 0);  // no source that leaves the GPUs' own memory out
    EXPECT_EQ(load_cluster("gb200-nvl72,host_memory_gib=960").host_memory_bytes, std::int64_t{960} << 30);
    for (const auto& name : cluster_preset_names()) {
        const ClusterSpec cluster = load_cluster(name);
        EXPECT_EQ(cluster.host_memory_bytes > 0, cluster.sources.contains("host_memory_bytes")) << name;
        EXPECT_EQ(cluster_from_json(cluster_to_json(cluster), name), cluster);
    }
}

TEST(ClusterOverrides, BadOnesAreReportedTogetherWithAWayOut) {
    const std::string problems =
        problems_of("dgx-h10,memory=40,gpus_per_node=0,nvlink_gbytes_per_second=nan,nvlink_domain,memory_gib=1,memory_gib=2");
    EXPECT_THAT(problems, HasSubstr("unknown preset 'dgx-h10'; did you mean dgx-h100"));
    EXPECT_THAT(problems, HasSubstr("unknown key 'memory'; did you mean memory_gbytes_per_second or memory_gib? the keys are bf16_tflops, "
                                    "fp8_tflops, gpus_per_node, host_memory_gib"));
    EXPECT_THAT(problems, HasSubstr("gpus_per_node = 0 is out of range; use a whole number from 1 to 1024"));
    EXPECT_THAT(problems, HasSubstr("nvlink_gbytes_per_second = 'nan' is not a number"));
    EXPECT_THAT(problems, HasSubstr("nvlink_domain needs a value"));
    EXPECT_THAT(problems, HasSubstr("memory_gib is given twice"));
}

TEST(ClusterOverrides, AbsurdValuesAreRefused) {
    for (const char* bad : {"0", "-1", "1e30", "inf", "nan", "9223372036854775808", "", "x", "0x10", "1e-30"}) {
        for (const char* key : {"gpus_per_node", "nvlink_domain", "memory_gib", "node_network_gbits_per_second", "nvlink_gbytes_per_second",
                                "bf16_tflops", "memory_gbytes_per_second"}) {
            const std::string text = std::string("dgx-h100,") + key + "=" + bad;
            EXPECT_THAT(problems_of(text), AllOf(HasSubstr(key), HasSubstr("; use "))) << text;
        }
    }
    EXPECT_THAT(problems_of("gb200-nvl72,gpus_per_node=5"), HasSubstr("neither a divisor nor a multiple of gpus_per_node = 5"));
}

TEST(ClusterOverrides, OddTextsAreErrorsAndNothingWorse) {
    for (const char* text :
         {"", ",", ",,,,", "=", "dgx-h100,", "dgx-h100,=", "dgx-h100,=5", "/", ".", "no/such/file.json", "DGX-H100,a=b=c"}) {
        EXPECT_THROW((void)load_cluster(text), ConfigError) << text;
    }
    EXPECT_THROW((void)load_cluster(std::string(100000, 'x')), ConfigError);
    EXPECT_THROW((void)load_cluster(std::string("dgx\0h100", 8)), ConfigError);
}

TEST(ClusterFiles, ReadBackWhatWasWritten) {
    const ClusterSpec cluster = load_cluster("dgx-h200,memory_gib=100");
    const TemporaryFile file("mgplan_cluster_test.json", cluster_to_json(cluster).dump(2));
    EXPECT_EQ(load_cluster(file.path()), cluster);
    EXPECT_EQ(load_cluster(file.path() + ",memory_gib=50").memory_bytes, std::int64_t{50} << 30);
}

TEST(ClusterFiles, BrokenOnesNameLineAndColumn) {
    const TemporaryFile file("mgplan_cluster_broken.json", "{\n  \"name\": oops\n}");
    EXPECT_THAT(problems_of(file.path()), HasSubstr("mgplan_cluster_broken.json:2:"));
    EXPECT_THAT(problems_of(std::filesystem::temp_directory_path().string()), HasSubstr("is a folder"));
    EXPECT_THAT(problems_of("missing/cluster.json"), HasSubstr("no such file"));
}

TEST(ClusterFiles, ThatArePipesAreGivenUpWhereNobodyWrites) {
    const TemporaryFile place("mgplan_cluster_pipe", "");
    std::filesystem::remove(place.path());
    ASSERT_EQ(::mkfifo(place.path().c_str(), 0600), 0);
    EXPECT_THAT(problems_of(place.path()), HasSubstr("is a pipe into which nobody writes for 5 seconds"));
    EXPECT_THAT(problems_of("/dev/zero"), HasSubstr("is larger than 4.0 MiB"));
}

TEST(ClusterJson, ReportsMissingUnknownAndIllTypedFieldsTogether) {
    Json json = cluster_to_json(load_cluster("dgx-h100"));
    json.erase("memory_bytes");
    json["memory_bandwith"] = 1;
    json["gpus_per_node"] = "eight";
    json["nvlink"].erase("latency");
    json["peak_flops"]["bf17"] = 1e12;
    const std::string problems = problems_of_json(json);
    EXPECT_THAT(problems, HasSubstr("field 'memory_bytes' is missing"));
    EXPECT_THAT(problems, HasSubstr("unknown field 'memory_bandwith'; did you mean memory_bandwidth"));
    EXPECT_THAT(problems, HasSubstr("gpus_per_node = \"eight\" is not a whole number"));
    EXPECT_THAT(problems, HasSubstr("file.json: nvlink: field 'latency' is missing"));
    EXPECT_THAT(problems, HasSubstr("unknown field 'bf17'"));
}

TEST(ClusterJson, AbsurdFiguresAreRefused) {
    for (const char* field :
         {"memory_bytes", "memory_bandwidth", "gpus_per_node", "nvlink_domain", "nics_per_node", "compute_capability"}) {
        for (const Json& bad : {Json(0), Json(-1), Json(1e30), Json(9223372036854775808ULL), Json(std::nan("")), Json("8"), Json(nullptr),
                                Json::array(), Json::object()}) {
            Json json = cluster_to_json(load_cluster("dgx-h100"));
            json[field] = bad;
            EXPECT_THAT(problems_of_json(json), HasSubstr(field)) << bad.dump();
        }
    }
    for (const Json& bad : {Json::array(), Json(1), Json("x"), Json(nullptr)})
        EXPECT_THROW((void)cluster_from_json(bad, "file"), ConfigError);
}

TEST(ClusterValidate, RefusesWhatIsNotFiniteAndPositive) {
    ClusterSpec cluster = load_cluster("dgx-h100");
    EXPECT_NO_THROW(validate(cluster, "here"));
    cluster.peak_flops[Precision::bf16] = std::numeric_limits<double>::infinity();
    cluster.memory_bandwidth = std::nan("");
    cluster.network.latency = -1;
    cluster.pcie.bandwidth = 0;
    cluster.gpus_per_node = 0;
    cluster.memory_bytes = std::numeric_limits<std::int64_t>::max();
    try {
        validate(cluster, "here");
        FAIL() << "a broken cluster passed";
    } catch (const ConfigError& error) {
        EXPECT_EQ(error.problems().size(), 6U) << error.what();
        EXPECT_THAT(error.what(), HasSubstr("here: peak_flops.bf16 = inf"));
    }
}

}  // namespace
}  // namespace mgplan::cluster_test
