"""Features in ten lines: ten digits of MNIST are the source, scikit-learn's digits 0-4 the target."""

from ba3us import PartialAdapter
from ba3us.data.digits import mnist_to_digits

X, y, Xt, truth = mnist_to_digits()  # pixels; the target's labels are for the last line alone
X, Xt = X.reshape(len(X), -1), Xt.reshape(len(Xt), -1)

model = PartialAdapter(random_state=0).fit(X, y, Xt)

print("verdict:", model.verdict_.outcome, "-", *model.verdict_.reasons)
print("classes in the target:", model.classes_present_)
print(model.class_presence_.round(3).to_string())
print(f"accuracy, which only labels can tell: {(model.predict(Xt) == truth).mean():.1%}")
