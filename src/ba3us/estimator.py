"""PartialAdapter: the scikit-learn estimator. It takes arrays of features and gives an adapted classifier."""

from __future__ import annotations

import dataclasses
import json
import numbers
import shutil
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path, PurePath
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike
from scipy import sparse
from sklearn.base import BaseEstimator, ClassifierMixin, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils import Tags, _safe_indexing, check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data
from torch import Tensor

from ba3us.adapt import train
from ba3us.assess.calibration import Calibration
from ba3us.assess.presence import PRESENT, UNCERTAIN
from ba3us.assess.verdict import SOURCE_ONLY, Verdict
from ba3us.auto.guard import with_verdict
from ba3us.data import Target
from ba3us.data.domains import check_numbers
from ba3us.data.files import encoded
from ba3us.errors import UserError, require
from ba3us.methods.auto import NAME as AUTO
from ba3us.run.arrays import ArraySamples, OpenedArrays
from ba3us.run.run import Run
from ba3us.run.spec import Spec
from ba3us.run.storage import candidates_folder
from ba3us.training import Callback

# what scikit-learn's metadata routing, which skada builds on, may hand to the methods
_FIT_METADATA = {"Xt": True, "sample_domain": True}
_PREDICT_METADATA = {"sample_domain": True, "allow_source": True}
_SPEC_PARAMS = ("method", "protocol", "task", "selection", "standardize", "n_threads", "device")


class PartialAdapter(ClassNamePrefixFeaturesOutMixin, ClassifierMixin, TransformerMixin, BaseEstimator):
    """A classifier for an unlabelled target that holds only some of the source's classes.

    Parameters
    ----------
    method : str, default="auto"
        ``"auto"`` chooses without labels, guards against harm and judges whether adapting helped. Any other
        name that ``ba3us methods`` lists trains that method as it is.
    preset : {"fast", "best"}, default="fast"
        Of ``"auto"``: one robust recipe beside source-only, or several with several seeds.
    steps, warmup_steps, batch_size, learning_rate : optional
        Replace the method's own defaults. Training takes seconds on a laptop by default.
    method_params : dict, optional
        Other options of the method, such as ``{"beta": 1.0}``. They win over those above.
    protocol, task : str, optional
        Use the settings published for a dataset, such as ``"office31"``, and one of its tasks, ``"A->W"``.
    selection : str or callable, default="entropy"
        Rule that selects the checkpoint of a named method: ``"entropy"`` (lowest mean entropy, the paper's
        rule), another rule of :mod:`ba3us.training.evaluation`, or a function of the target's
        outputs, where larger is better.
    standardize : bool, optional
        Standardise features by the source's columns, within the model. By default only where they are far from
        unit scale.
    random_state : int, RandomState or None, default=0
        Seed of initial weights, batches and dropout. None draws another seed at every fit.
    n_threads : int, optional
        CPU threads; torch's number by default. Results repeat to the last bit for the same number.
    device : str, optional
        ``"cpu"``, ``"cuda"`` or ``"auto"``, the default.
    assess : bool, default=False
        Judge a named method, too. It takes about as long as ``"auto"``, which always has a verdict.
    callbacks : sequence of Callback
        Called during training.
    checkpoint : path, optional
        File that holds the state of the training while it runs. After an interruption the same `fit` resumes
        from it, with the same result. It is removed at the end.
    verbose : bool, default=False
        Show progress on the standard error.

    Attributes
    ----------
    classes_ : array [C]
        The source's labels, sorted.
    class_proportions_ : array [C]
        BA³US's m, for any method: the mean prediction over the target. It sums to one.
    classes_present_ : array
        Labels of the classes that are present in the target.
    class_presence_ : DataFrame
        Indexed by class: the estimated `proportion` of the target, an interval from `low` to `high`, the
        `mean_probability`, and `present`: ``"present"``, ``"absent"`` or ``"uncertain"``. See
        :func:`ba3us.assess.presence.presence`.
    verdict_ : Verdict or None
        Whether adapting likely helped, which model is used, the reasons and the figures behind them.
    leaderboard_ : DataFrame or None
        Of ``"auto"``: the candidates.
    calibration_ : Calibration or None
        Where there is a verdict: the temperature of the logits, and a threshold for each error level.
    history_ : DataFrame
        Losses, learning rate and ramps of every tenth step, and label-free scores of every evaluation.
    evaluations_ : list of Evaluation
        Evaluations of the whole target during training: predictions (indices into `classes_`), mean
        probabilities, label-free scores.
    best_index_ : int or None
        Index of the evaluation whose weights are used.
    run_ : Run
        Model, spec, history and all of the above.
    n_features_in_, feature_names_in_
        As everywhere in scikit-learn.

    Notes
    -----
    Without a target, `fit` warns and trains source-only for as many steps. All classes then count as present
    with equal proportions, `evaluations_` is empty, `best_index_` is None, and the last weights are used.

    Memory-mapped arrays stay on disk, in `fit` and in `predict`; with `sample_domain` as long as each domain
    is one block of rows. float16, float32 and float64 are computed in float32.

    In ``GridSearchCV(PartialAdapter(), grid).fit(X, y, Xt=Xt)`` each fold adapts to `Xt`, but the score is the
    accuracy on held-out *source* samples, which says little about the target. A `scoring` function that uses
    the target needs no labels::

        def confident_and_diverse(model, X, y):
            p = model.predict_proba(Xt)
            mean = p.mean(axis=0)
            return (p * np.log(p + 1e-9)).sum(axis=1).mean() - (mean * np.log(mean + 1e-9)).sum()

    (If `Xt` has as many rows as `X`, scikit-learn cuts it into folds, too.) skada's scorers and splitters do it
    with `sample_domain`. In a ``Pipeline`` earlier steps transform `X` only: stack both domains and pass
    ``partialadapter__sample_domain``, so that they transform the target as well.

    Examples
    --------
    >>> model = PartialAdapter().fit(X, y, Xt)  # doctest: +SKIP
    >>> model.predict(Xt), model.classes_present_, model.verdict_  # doctest: +SKIP
    >>> model.predict(Xt, max_error=0.05)  # abstained samples are masked  # doctest: +SKIP
    >>> model.save("runs/new")  # doctest: +SKIP
    """

    __metadata_request__fit = _FIT_METADATA
    __metadata_request__predict = _PREDICT_METADATA
    __metadata_request__predict_proba = _PREDICT_METADATA
    __metadata_request__decision_function = _PREDICT_METADATA
    __metadata_request__transform = _PREDICT_METADATA
    __metadata_request__score = _PREDICT_METADATA | {"sample_weight": True}

    def __init__(
        self,
        method: str = "auto",
        *,
        preset: str = "fast",
        steps: int | None = None,
        warmup_steps: int | None = None,
        batch_size: int | None = None,
        learning_rate: float | None = None,
        method_params: dict[str, Any] | None = None,
        protocol: str | None = None,
        task: str | None = None,
        selection: str | Callable[..., float] = "entropy",
        standardize: bool | None = None,
        random_state: int | np.random.RandomState | None = 0,
        n_threads: int | None = None,
        device: str | None = None,
        assess: bool = False,
        callbacks: Sequence[Callback] = (),
        checkpoint: str | Path | None = None,
        verbose: bool = False,
    ) -> None:
        self.method = method
        self.preset = preset
        self.steps = steps
        self.warmup_steps = warmup_steps
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.method_params = method_params
        self.protocol = protocol
        self.task = task
        self.selection = selection
        self.standardize = standardize
        self.random_state = random_state
        self.n_threads = n_threads
        self.device = device
        self.assess = assess
        self.callbacks = callbacks
        self.checkpoint = checkpoint
        self.verbose = verbose

    def fit(
        self, X: ArrayLike, y: ArrayLike, Xt: ArrayLike | None = None, *, sample_domain: ArrayLike | None = None
    ) -> PartialAdapter:
        """Adapt to a target.

        Parameters
        ----------
        X : array [n, features]
            The source; with `sample_domain`, the samples of both domains.
        y : array [n]
            Labels of any type: strings, numbers, booleans. Those of target samples are never read.
        Xt : array [m, features], optional
            The target.
        sample_domain : array [n], optional
            In place of `Xt`, as in skada: positive for source samples, negative for target samples.
        """
        spec = self._spec()
        if sample_domain is not None:
            require(Xt is None, "Both Xt and sample_domain are given: leave one of them out.")
            source, y, target = split_domains(check_array(self, X, "X", reset=True), y, sample_domain)
        else:
            source = check_array(self, X, "source", reset=True)
            target = None if Xt is None else check_array(self, Xt, "target")
        adapted = target is not None
        if not adapted and self.method != SOURCE_ONLY:
            warnings.warn(
                "No target is given, so the classifier is trained on the source only: pass Xt to adapt it, or "
                "sample_domain with negative numbers for target samples.",
                UserWarning,
                stacklevel=2,
            )
        classes, labels = encoded(y, len(source))
        # source-only needs a target to be evaluated on, but never trains on it
        evaluated = source[:1] if target is None else target
        opened = OpenedArrays(ArraySamples(source.shape[1:]), source, labels, evaluated, classes.tolist())
        spec = spec if adapted else spec.source_only()
        state = None if self.checkpoint is None else Path(self.checkpoint)
        run, domain = train(spec, opened, callbacks=self.callbacks, state=state, resume=True, show=self.verbose)
        if self.assess and adapted:
            run = with_verdict(run, domain, spec, opened, self.verbose)
        if state is not None:
            state.unlink(missing_ok=True)
            shutil.rmtree(candidates_folder(state), ignore_errors=True)
        self._set_fitted(run, classes, adapted)
        return self

    def predict(
        self,
        X: ArrayLike,
        *,
        max_error: float | None = None,
        sample_domain: ArrayLike | None = None,
        allow_source: bool = True,
    ) -> np.ndarray:
        """Predict the most probable label of each sample.

        Parameters
        ----------
        X : array [n, features]
            Samples.
        max_error : float, optional
            Abstain where the confidence is too low, so that at most this proportion of the other predictions is
            expected to be wrong, such as 0.05. It needs a calibration: ``method="auto"`` or ``assess=True``.
        sample_domain, allow_source
            For skada; ignored.

        Returns
        -------
        array [n]
            Labels. With `max_error` a masked array: abstained samples are masked, ``labels.compressed()`` has
            the others, and ``labels.data`` has a label for every sample. Its dtype is that of `classes_`.
        """
        check_is_fitted(self)
        if max_error is None:
            return self.classes_[self._collect(X, np.int64, lambda _, logits: logits.argmax(dim=1).numpy())]
        calibration = self.calibration_
        if calibration is None:
            raise UserError(
                f"max_error is {max_error}, but the method {self.method!r} has no calibration: use "
                "method='auto' or assess=True, and fit with a target."
            )
        threshold = calibration.threshold(max_error)
        columns = self._collect(
            X,
            np.float64,
            lambda _, logits: np.stack([logits.argmax(dim=1), calibration.confidence(logits.numpy())], axis=1),
        )
        labels = self.classes_[columns[:, 0].astype(np.int64)]
        return np.ma.masked_array(labels, mask=columns[:, 1] < threshold)

    def predict_proba(
        self, X: ArrayLike, *, sample_domain: ArrayLike | None = None, allow_source: bool = True
    ) -> np.ndarray:
        """Predict the probability of each class, float32 [n, C], in the order of `classes_`.

        Where there is a calibration, logits are divided by its temperature, which does not change the order.
        """
        check_is_fitted(self)
        temperature = 1.0 if self.calibration_ is None else self.calibration_.temperature
        return self._collect(X, np.float32, lambda _, logits: (logits / temperature).softmax(dim=1).numpy())

    def decision_function(
        self, X: ArrayLike, *, sample_domain: ArrayLike | None = None, allow_source: bool = True
    ) -> np.ndarray:
        """Compute the logits, float32 [n, C]; for two classes, as in scikit-learn, their difference [n]."""
        logits = self._collect(X, np.float32, lambda _, logits: logits.numpy())
        return logits[:, 1] - logits[:, 0] if len(self.classes_) == 2 else logits

    def transform(
        self, X: ArrayLike, *, sample_domain: ArrayLike | None = None, allow_source: bool = True
    ) -> np.ndarray:
        """Compute adapted features, the input of the classifier, float32 [n, d]."""
        return self._collect(X, np.float32, lambda features, _: features.numpy())

    def fit_transform(
        self,
        X: ArrayLike,
        y: ArrayLike | None = None,
        Xt: ArrayLike | None = None,
        *,
        sample_domain: ArrayLike | None = None,
    ) -> np.ndarray:
        """Call :meth:`fit`, then :meth:`transform` on `X`."""
        return self.fit(X, y, Xt, sample_domain=sample_domain).transform(X)  # type: ignore[arg-type]

    def score(
        self,
        X: ArrayLike,
        y: ArrayLike,
        sample_weight: ArrayLike | None = None,
        *,
        sample_domain: ArrayLike | None = None,
        allow_source: bool = True,
    ) -> float:
        """Compute the accuracy on labelled samples."""
        return super().score(X, y, sample_weight)

    def save(self, path: str | Path) -> None:
        """Write a run directory, which :meth:`load`, ``ba3us predict``, ``report`` and ``export`` read.

        An existing run in `path` is replaced. Callbacks and the path of the checkpoint are not saved. Of a
        random generator the seed that was drawn is saved. Labels must be strings, numbers or booleans.
        """
        check_is_fitted(self)
        for label in self.run_.model.blueprint.classes:
            require(
                isinstance(label, str | bool | int | float),
                f"The label {label!r} is of type {type(label).__name__}, which can't be saved: use strings.",
            )
        require(
            isinstance(self.selection, str), "A `selection` that is a function can't be saved: give a name."
        )
        params = self.get_params()
        for name in ("callbacks", "checkpoint", "random_state"):
            del params[name]
        estimator = {
            "params": json.loads(json.dumps(params, default=np.generic.item)),  # Python's numbers, not NumPy's
            "label_dtype": self.classes_.dtype.str,
            "feature_names": getattr(self, "feature_names_in_", np.array([])).tolist(),
            "adapted": self.best_index_ is not None,
        }
        dataclasses.replace(self.run_, about=self.run_.about | {"estimator": estimator}).save(path)

    @classmethod
    def load(cls, path: str | Path) -> PartialAdapter:
        """Read what :meth:`save` wrote, or a run on feature vectors that ``ba3us adapt`` wrote.

        Loading can't run code: weights are read from a safetensors file, everything else from text and arrays.
        """
        run = Run.load(path)
        samples, spec = run.model.blueprint.samples, run.spec
        if len(samples.input_shape) != 1:
            raise UserError(f"The run in {path} is not on feature vectors: predict with ba3us predict.")
        saved = run.about.get("estimator", {})
        about = {name: value for name, value in run.about.items() if name != "estimator"}
        run = dataclasses.replace(run, about=about)
        params = {name: getattr(spec, name) for name in (*_SPEC_PARAMS, "method_params")}
        params["assess"] = spec.method != AUTO and run.verdict is not None
        try:
            model = cls(**saved.get("params", params), random_state=spec.seed)
            classes = np.array(run.model.blueprint.classes, saved.get("label_dtype"))
            model.n_features_in_ = samples.input_shape[0]
            if names := saved.get("feature_names"):
                model.feature_names_in_ = np.array(names, dtype=object)
            model._set_fitted(run, classes, saved.get("adapted", True))
        except (TypeError, ValueError, AttributeError) as error:
            raise UserError(
                f"The run {path} can't be read as a PartialAdapter ({error}): fit and save again."
            ) from error
        return model

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.transformer_tags.preserves_dtype = ["float32"]
        return tags

    def __sklearn_is_fitted__(self) -> bool:
        """Tell whether a fit has succeeded; one that failed has set `n_features_in_` only."""
        return hasattr(self, "run_")

    def _spec(self) -> Spec:
        require(
            self.method_params is None or isinstance(self.method_params, dict),
            f"method_params is {self.method_params!r}: give a dict of options, such as {{'beta': 1.0}}.",
        )
        names = ("steps", "warmup_steps", "batch_size", "learning_rate")
        options = {name: getattr(self, name) for name in names if getattr(self, name) is not None}
        options |= {"preset": self.preset} if self.method == AUTO else {}
        seed = self.random_state
        if isinstance(seed, numbers.Integral):
            require(seed >= 0, f"random_state is {seed}: it must be 0 or more.")
        else:
            seed = check_random_state(seed).randint(2**31 - 1)
        spec = Spec(
            **{name: getattr(self, name) for name in _SPEC_PARAMS},
            method_params=options | (self.method_params or {}),
            seed=int(seed),
        )
        spec.method_options()  # refuse wrong options before the data is read
        return spec

    def _collect(self, X: Any, dtype: Any, output: Callable[[Tensor, Tensor], np.ndarray]) -> np.ndarray:
        """Compute an output from features and logits of every sample, batch by batch."""
        check_is_fitted(self)
        domain, start = Target(check_array(self, X, "X"), name="X"), 0
        for features, logits in self.run_.model.outputs(domain):
            part = output(features, logits)
            if start == 0:  # one array for all; many small ones would leave holes in the memory
                collected = np.empty((len(domain), *part.shape[1:]), dtype)
            collected[start : start + len(part)] = part
            start += len(part)
        return collected

    def _set_fitted(self, run: Run, classes: np.ndarray, adapted: bool) -> None:
        """Set the fitted attributes; without a target, nothing is known of the classes."""
        self.run_, self.classes_ = run, classes
        self._n_features_out = run.model.feature_dim
        self.history_ = run.history
        self.evaluations_ = run.evaluations if adapted else []
        self.best_index_: int | None = run.best_index if adapted else None
        self.class_proportions_ = (
            run.best.mean_probabilities if adapted else np.full(len(classes), 1 / len(classes))
        )
        presence = run.presence.drop(columns="class").set_index(pd.Index(classes, name="class"))
        self.classes_present_ = classes[(presence["present"] == PRESENT).to_numpy() | (not adapted)]
        if not adapted:
            presence = presence.assign(
                proportion=np.nan, low=0.0, high=1.0, mean_probability=np.nan, present=UNCERTAIN
            )
        self.class_presence_ = presence
        self.verdict_: Verdict | None = run.verdict
        self.leaderboard_: pd.DataFrame | None = run.leaderboard
        self.calibration_: Calibration | None = run.calibration


# --- arrays -------------------------------------------------------------------------------------------------


def check_array(estimator: PartialAdapter, x: Any, name: str, *, reset: bool = False) -> np.ndarray:
    """Check anything two-dimensional and return it as an array of numbers; a memory-mapped one as it is.

    With `reset` the estimator takes over the number and names of the features, else they must be those it has.
    Values are not read.
    """
    require(not sparse.issparse(x), f"The {name} is a sparse matrix: make it dense with toarray().")
    require(
        not isinstance(x, str | PurePath),
        f"The {name} is the text {str(x)!r}: load the file, give its array.",
    )
    try:
        x = x if hasattr(x, "shape") else np.asarray(x)
        require(
            len(x.shape) == 2,
            f"The {name} has shape {tuple(x.shape)}: Reshape your data to [n, features], one row per sample.",
        )
        if not reset and x.shape[1] != (expected := estimator.n_features_in_):
            mismatch = f"The {name} has {x.shape[1]} features, the source {expected}"
            if name == "X":  # scikit-learn's words
                kind = type(estimator).__name__
                mismatch = f"X has {x.shape[1]} features, but {kind} is expecting {expected} features as input"
            raise UserError(f"{mismatch}: give both the same columns.")
        if isinstance(x, np.memmap):
            require(x.shape[1] > 0, f"The {name} has 0 features: give at least one column.")
            if reset:
                estimator.n_features_in_ = x.shape[1]
            return x
        return validate_data(
            estimator, x, reset=reset, dtype="numeric", ensure_all_finite=False, ensure_min_samples=0
        )
    except UserError:
        raise
    except (ValueError, RuntimeError) as error:
        reason = str(error).partition("\n")[0][:300].rstrip(".")  # the other lines show the data
        raise UserError(f"The {name} can't be used ({reason}): give an array of numbers.") from error


def split_domains(x: np.ndarray, y: Any, sample_domain: Any) -> tuple[np.ndarray, Any, np.ndarray | None]:
    """Split by the sign of `sample_domain` into source samples, their labels and target samples (or None).

    Labels of target samples are never read.
    """
    check_numbers(x, "X")  # here, where row numbers are still the user's
    domain = np.asarray(sample_domain)
    require(
        domain.shape == (len(x),) and domain.dtype.kind in "iuf",
        f"sample_domain has shape {domain.shape} and type {domain.dtype} for {len(x)} rows: "
        "give one number per row, positive for source and negative for target.",
    )
    unclear = np.flatnonzero(~((domain > 0) | (domain < 0)))
    if len(unclear):
        raise UserError(
            f"sample_domain is {domain[unclear[0]]} in row {unclear[0]}: "
            "make it positive for source rows and negative for target rows."
        )
    source, target = np.flatnonzero(domain > 0), np.flatnonzero(domain < 0)
    require(len(source) > 0, "sample_domain has no source row: give source rows a positive number.")
    if y is not None:
        length = len(y) if hasattr(y, "__len__") else np.asarray(y).size
        require(length == len(x), f"X has {len(x)} rows but {length} labels: give one label per row.")
        y = _safe_indexing(y, source)  # a list stays a list: an array could change the labels' type
    return _block(x, source), y, _block(x, target) if len(target) else None


def _block(x: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """Take rows of `x`: a view if they are one block (a mapped file is not read), else a copy."""
    first, last = int(rows[0]), int(rows[-1])
    return x[first : last + 1] if last - first + 1 == len(rows) else x[rows]
