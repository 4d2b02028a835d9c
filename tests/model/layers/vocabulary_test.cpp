#include "model/layers/vocabulary.hpp"

#include <gtest/gtest.h>

#include "tests/model/layers/support.hpp"

namespace mgplan::model::vocabulary_test {
namespace {

/// Parameters of the two ends on one rank.
std::vector<Parameter> end_parameters(const ModelSpec& model) {
    Layout layout;
    layout.sizes = {1, 1, 1, 1, 1, 1, AxisOrder{}, 1};
    layout.split = std::make_shared<const StageSplit>(automatic_stage_split(model.layers, 0, 1, 1).value());
    auto parameters = stage_parameters(model, layout, 0).at(0);
    std::erase_if(parameters, [](const Parameter& parameter) { return parameter.name.find("layers.") != std::string::npos; });
    return parameters;
}

std::vector<Parameter> only(std::vector<Parameter> parameters, std::string_view part) {
    std::erase_if(parameters, [&](const Parameter& parameter) { return parameter.name.find(part) == std::string::npos; });
    return parameters;
}

TEST(VocabularyEmbedding, GradientsHoldForWordsPositionsTypesAndTheirNorm) {
    for (const auto& [dropout, normed] : {std::pair{0.0, false}, {0.3, false}, {0.0, true}, {0.3, true}}) {
        ModelSpec model = layer_model();
        model.token_types = 2;
        model.hidden_dropout = dropout;
        model.embedding_norm = normed;
        OneRank rank;
        const auto parameters = only(end_parameters(model), "embedding.");
        ASSERT_EQ(parameters.size(), normed ? 5U : 3U);
        const WeightTable weights = rank.weights_for(parameters);
        const VocabularyEmbedding layer(model, weights, "embedding.");
        const Tensor ids = rank.maker.ids({3, 1, 4, 1, 5, 9, 2, 6, 5, 10}, {10}), dy = rank.maker.random({10, 8});
        const auto loss = [&] {
            EmbeddingSaved saved;
            return weigh(layer.forward(rank.context, rank.microbatch, ids, saved), dy);
        };
        const auto backward = [&] {
            EmbeddingSaved saved;
            (void)layer.forward(rank.context, rank.microbatch, ids, saved);
            layer.backward(rank.context, rank.microbatch, dy, ids, saved);
            return Tensor();
        };
        expect_layer_gradients({loss, backward, {}}, parameters, weights);
    }
}

TEST(VocabularyEmbedding, AddsThePlaceAndTheFirstTypeToEveryWord) {
    ModelSpec model = layer_model();
    model.token_types = 2;
    OneRank rank;
    const auto parameters = only(end_parameters(model), "embedding.");
    const WeightTable weights = rank.weights_for(parameters);
    const VocabularyEmbedding layer(model, weights, "embedding.");
    const Tensor ids = rank.maker.ids({3, 1, 4, 1, 5, 9, 2, 6, 5, 10}, {10});
    EmbeddingSaved saved;
    const auto y = read(layer.forward(rank.context, rank.microbatch, ids, saved));
    const auto words = read(weights.at("embedding.word_embeddings.weight").value);
    const auto places = read(weights.at("embedding.position_embeddings.weight").value);
    const auto types = read(weights.at("embedding.tokentype_embeddings.weight").value);
    // Row 7: place 3 of the second sequence, id 6.
    for (std::size_t i = 0; i < 8; ++i) EXPECT_NEAR(y[7 * 8 + i], words[6 * 8 + i] + places[3 * 8 + i] + types[i], 1e-15);
}

struct Head {
    explicit Head(const ModelSpec& model) : spec(model) {
        parameters = end_parameters(spec);
        std::erase_if(parameters, [](const Parameter& parameter) { return parameter.name.find("embedding.") != std::string::npos; });
        weights = rank.weights_for(parameters);
        x = rank.maker.random({10, 8});
        targets = rank.maker.ids({3, 1, 4, 1, 5, 9, 2, 6, 5, 10}, {10});
    }
    /// Sum of all rows' losses.
    double loss() {
        const LossHead layer(spec, weights, weights.at("output_layer.weight"));
        LossHeadSaved saved;
        (void)layer.normalise(rank.context, x, saved);
        double sum = 0;
        for (const double value : read(layer.forward(rank.context, targets, saved))) sum += value;
        return sum;
    }
    Tensor backward(double d_loss) {
        const LossHead layer(spec, weights, weights.at("output_layer.weight"));
        LossHeadSaved saved;
        (void)layer.normalise(rank.context, x, saved);
        (void)layer.forward(rank.context, targets, saved);
        return layer.normalise_backward(layer.backward(rank.context, targets, d_loss, saved), saved);
    }

    ModelSpec spec;
    OneRank rank;
    std::vector<Parameter> parameters;
    WeightTable weights;
    Tensor x, targets;
};

TEST(LossHead, GradientsHoldForBothNorms) {
    for (const auto normalization : {Normalization::layer_norm, Normalization::rms_norm}) {
        ModelSpec model = layer_model();
        model.normalization = normalization;
        Head head(model);
        expect_layer_gradients({[&] { return 0.25 * head.loss(); }, [&] { return head.backward(0.25); }, head.x}, head.parameters,
                               head.weights);
    }
}

TEST(LossHead, RowsWithoutATargetHaveNoLossAndNoGradient) {
    Head head(layer_model());
    const double all = head.loss();
    const std::vector<double> before = read(head.backward(0.5));
    head.targets = head.rank.maker.ids({3, -1, 4, 1, 5, 9, 2, 6, 5, -1}, {10});
    EXPECT_LT(head.loss(), all);
    const std::vector<double> after = read(head.backward(0.5));
    for (std::size_t i = 0; i < after.size(); ++i) EXPECT_EQ(after[i], i / 8 == 1 || i / 8 == 9 ? 0 : before[i]) << i;
    expect_layer_gradients({[&] { return 0.5 * head.loss(); }, [&] { return head.backward(0.5); }, head.x}, {}, head.weights);
}

TEST(LossHead, PaddedRowsOfTheVocabularyChangeNothing) {
    Head head(layer_model());
    const Tensor& table = head.weights.at("output_layer.weight").value;
    ASSERT_EQ(table.shape(), (Shape{16, 8})) << "11 ids and five rows of padding";
    const double before = head.loss();
    const auto dx = read(head.backward(1));
    auto values = read(table);
    std::fill(values.begin() + 11 * 8, values.end(), 1000.0);
    head.rank.device.write(table, values.data());
    EXPECT_EQ(head.loss(), before);
    EXPECT_EQ(read(head.backward(1)), dx);
    const auto gradient = read(head.weights.at("output_layer.weight").gradient);
    for (std::size_t i = 11 * 8; i < gradient.size(); ++i) EXPECT_EQ(gradient[i], 0) << "row " << i / 8;
    values[10 * 8] += 1;
    head.rank.device.write(table, values.data());
    EXPECT_NE(head.loss(), before) << "the last real row counts";
}

}  // namespace
}  // namespace mgplan::model::vocabulary_test
