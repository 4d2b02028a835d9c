// Muon's update against NVIDIA's own optimizer (tests/golden/make_muon_vectors.py), and what orthogonalising means.

#include "model/optimizer/muon.hpp"

#include <cmath>
#include <fstream>
#include <numeric>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "runtime/comm/in_process/in_process_world.hpp"
#include "runtime/cpu/cpu_device.hpp"
#include "tests/support/data_folder.hpp"

namespace mgplan::model::muon_test {
namespace {

using Json = nlohmann::json;

Tensor fp64_of(Device& device, const Shape& shape, const std::vector<double>& values) {
    Tensor tensor = device.empty(shape, Dtype::fp64, MemoryCategory::optimizer, "values of a test");
    device.write(tensor, values.data());
    return tensor;
}

std::vector<double> values_of(const Tensor& tensor) {
    std::vector<double> values(static_cast<std::size_t>(tensor.elements()));
    tensor.device().read(tensor, values.data());
    return values;
}

MuonScale scale_named(const std::string& name) {
    return name == "spectral" ? MuonScale::spectral : name == "unit_rms_norm" ? MuonScale::unit_rms_norm : MuonScale::shape_scaling;
}

TEST(Muon, MovesMatricesAsNvidiasOwnOptimizer) {
    std::ifstream file(tests::data_folder() + "/golden/data/muon.json");
    const Json golden = Json::parse(file);
    ASSERT_EQ(golden["cases"].size(), 4U);
    for (const Json& one : golden["cases"]) {
        runtime::CpuDevice device;
        const auto parts = one["parts"].get<std::vector<std::int64_t>>();
        Parameter parameter;
        parameter.name = parts.size() > 1 ? "self_attention.linear_qkv.weight" : "mlp.linear_fc2.weight";
        parameter.shape = {one["groups"].get<std::int64_t>() * std::accumulate(parts.begin(), parts.end(), std::int64_t{0}),
                           one["columns"].get<std::int64_t>()};
        const Shape flat{parameter.count()};
        const Tensor main = fp64_of(device, flat, one["initial"]);
        const Tensor momentum = fp64_of(device, flat, std::vector<double>(static_cast<std::size_t>(parameter.count())));
        MuonOptions options;
        options.momentum = golden["momentum"];
        options.nesterov = one["nesterov"];
        options.scale = scale_named(one["scale"]);
        options.steps = one.value("steps", options.steps);
        options.extra_scale = one.value("extra_scale", options.extra_scale);
        options.qkv_rows = parts;
        for (const Json& gradient : one["gradients"])
            muon_step({main, momentum, fp64_of(device, flat, gradient), &parameter, nullptr, Dtype::fp64}, options,
                      {golden["learning_rate"], golden["weight_decay"], 1});
        const auto moved = values_of(main), kept = values_of(momentum);
        // The reference computes in fp32; each element moves by some 0.02.
        for (std::size_t i = 0; i < moved.size(); ++i) {
            EXPECT_NEAR(moved[i], one["parameters"][i].get<double>(), 1e-6) << one["name"] << " " << i;
            EXPECT_NEAR(kept[i], one["momentum"][i].get<double>(), 1e-8) << one["name"] << " " << i;
        }
    }
}

/// Some matrix of full rank.
std::vector<double> some_matrix(std::int64_t rows, std::int64_t columns) {
    std::vector<double> values;
    for (std::int64_t i = 0; i < rows * columns; ++i)
        values.push_back(std::sin(static_cast<double>(3 * i + 1)) + 0.1 * std::cos(static_cast<double>(i * i)));
    return values;
}

/// The rank's even part of a (rows, columns) matrix.
std::vector<double> part_of(const std::vector<double>& whole, std::int64_t rows, std::int64_t columns, int axis, std::int64_t rank,
                            std::int64_t ranks) {
    std::vector<double> part;
    for (std::int64_t r = 0; r < rows; ++r) {
        for (std::int64_t c = 0; c < columns; ++c) {
            if ((axis == 0 ? r / (rows / ranks) : c / (columns / ranks)) == rank)
                part.push_back(whole[static_cast<std::size_t>(r * columns + c)]);
        }
    }
    return part;
}

TEST(Muon, BringsSingularValuesNearOne) {
    runtime::CpuDevice device;
    const std::int64_t rows = 6, columns = 9;
    const auto x = values_of(orthogonalised(fp64_of(device, {rows, columns}, some_matrix(rows, columns)), std::nullopt, nullptr, 5));
    double off = 0;
    for (std::int64_t i = 0; i < rows; ++i) {
        for (std::int64_t j = 0; j < rows; ++j) {
            double product = 0;
            for (std::int64_t c = 0; c < columns; ++c)
                product += x[static_cast<std::size_t>(i * columns + c)] * x[static_cast<std::size_t>(j * columns + c)];
            if (i == j)
                EXPECT_NEAR(product, 1, 0.35);  // the coefficients bring singular values to 0.7 to 1.2
            else
                off = std::max(off, std::abs(product));
        }
    }
    EXPECT_LT(off, 0.25);
}

TEST(Muon, OrthogonalisesPartsOfTheRanksAsTheWhole) {
    for (const auto& [rows, columns] : {std::pair<std::int64_t, std::int64_t>{4, 12}, {12, 4}, {8, 8}}) {
        const auto whole = some_matrix(rows, columns);
        runtime::CpuDevice alone;
        const auto expected = values_of(orthogonalised(fp64_of(alone, {rows, columns}, whole), std::nullopt, nullptr, 5));
        for (const int axis : {0, 1}) {
            runtime::InProcessWorld world(2);
            runtime::run_ranks(world, [&](int rank) {
                runtime::CpuDevice device;
                const std::vector<std::int32_t> both{0, 1};
                const auto tp = world.view(rank).join("tp", both);
                const Shape shape{axis == 0 ? rows / 2 : rows, axis == 1 ? columns / 2 : columns};
                const Tensor part = fp64_of(device, shape, part_of(whole, rows, columns, axis, rank, 2));
                const auto found = values_of(orthogonalised(part, axis, tp.get(), 5));
                const auto wanted = part_of(expected, rows, columns, axis, rank, 2);
                for (std::size_t i = 0; i < wanted.size(); ++i) EXPECT_NEAR(found[i], wanted[i], 1e-12) << rows << " " << axis;
            });
        }
    }
}

TEST(Muon, MovesMatricesOfLayersAlone) {
    const auto matrix = [](const char* name, std::vector<std::int64_t> shape) {
        Parameter parameter;
        parameter.name = name;
        parameter.shape = std::move(shape);
        return is_muon_matrix(parameter);
    };
    EXPECT_TRUE(matrix("decoder.layers.0.mlp.router.weight", {8, 32}));
    EXPECT_FALSE(matrix("decoder.layers.0.mlp.linear_fc1.bias", {8}));
    EXPECT_FALSE(matrix("decoder.layers.0.mixer.conv1d.weight", {8, 1, 4}));
    EXPECT_FALSE(matrix("embedding.word_embeddings.weight", {64, 32}));
    EXPECT_FALSE(matrix("output_layer.weight", {64, 32}));
}

}  // namespace
}  // namespace mgplan::model::muon_test
